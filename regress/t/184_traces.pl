# Traces by HTTP: recorded, found by message and by name, listed.
use strict;
use warnings;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error);
use Test::More;

my $queen = QueenTest->new('traces', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend;
my $time = qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
my $uuid = qr/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
my $nowhere = '11111111-2222-3333-4444-555555555555';

sub trace { my ($body) = @_; return $web->post('/api/v1/traces', $body); }
sub escape { return QueenTest::Frontend::escape($_[0]); }
sub get { my ($path) = @_; return $web->get("/api/v1/traces/$path"); }

is_deeply(get("$nowhere/x")->{json}, { traces => [] }, 'no traces');
is_deeply(get('names')->{json}, { trace_names => [], total => 0, pagination => { limit => 50, offset => 0 } }, 'no names');
is_deeply(get('by-name/x')->{json}, { traces => [], total => 0, pagination => { limit => 100, offset => 0 } }, 'none of a name');

$web->push({ queue => 'traced', partition => 'p', payload => 1, transactionId => 'tx/1' });
my ($message) = $web->pop('traced');
my %common = (transactionId => 'tx/1', partitionId => $message->{partitionId});
my $recorded = trace({ %common, data => { step => 1, text => "\x{1f422}" }, traceNames => [ 'order', 'shop', 'order' ], consumerGroup => 'g', eventType => 'step' });
is($recorded->{status}, 201, 'a trace is recorded');
like($recorded->{json}{traceId}, $uuid, 'and has an id');
is($recorded->{json}{success}, JSON::PP::true, 'success');
is(trace({ %common, data => {}, traceNames => $_ })->{status}, 201, 'names may be ' . ($_ // 'null')) for 'order', undef;
is(trace({ %common, data => {}, traceNames => [], consumerGroup => '', eventType => undef })->{status}, 201, 'or an empty list');
is(trace({ transactionId => 'none', partitionId => $nowhere, data => { a => [ 1.5, JSON::PP::true, undef ] }, traceNames => 'order' })->{status}, 201,
    'the message need not exist');

{
    my $traces = get("$message->{partitionId}/" . escape('tx/1'))->{json}{traces};
    my ($first, $second) = @$traces;
    is(scalar @$traces, 4, 'all of the message');
    is($first->{id}, $recorded->{json}{traceId}, 'the oldest first');
    like($first->{created_at}, $time, 'when');
    like($first->{worker_id}, qr/^.+-$web->{pid}$/, 'by whom');
    is_deeply($first,
        { id => $first->{id}, event_type => 'step', data => { step => 1, text => "\x{1f422}" }, consumer_group => 'g', worker_id => $first->{worker_id},
            created_at => $first->{created_at}, trace_names => [ 'order', 'shop' ] }, 'what was said');
    is_deeply([ map { [ @$_{qw(event_type consumer_group trace_names)} ] } @$traces[ 1 .. 3 ] ],
        [ map { [ 'info', '__QUEUE_MODE__', $_ ] } ['order'], [], [] ], 'what is said when nothing is');

    my $named = get('by-name/order?limit=2&offset=1')->{json};
    is_deeply([ $named->{total}, $named->{pagination} ], [ 3, { limit => 2, offset => 1 } ], 'a page of a name');
    is_deeply([ map { [ @$_{qw(transaction_id partition_id queue_name partition_name message_payload)} ] } @{ $named->{traces} } ],
        [ [ 'tx/1', $message->{partitionId}, 'traced', 'p', undef ], [ 'none', $nowhere, undef, undef, undef ] ], 'with the message');
    is(get("by-name/order?$_")->{json}{pagination}{limit}, 100, "$_ is the default") for 'limit=x', 'limit=-1', 'limit=';
    is(get('by-name/order?limit=5000')->{json}{pagination}{limit}, 1000, 'a page has an end');
    my $names = get('names')->{json};
    is_deeply([ map { delete $_->{last_seen}; $_ } @{ $names->{trace_names} } ],
        [ { trace_name => 'order', trace_count => 3, message_count => 2 }, { trace_name => 'shop', trace_count => 1, message_count => 1 } ], 'the names');
    is_deeply([ map { $_->{trace_name} } @{ get('names?limit=1&offset=1')->{json}{trace_names} } ], ['shop'], 'a page of them');
}

# They survive the queue.
$web->request('DELETE', '/api/v1/resources/queues/traced');
is(scalar @{ get("$message->{partitionId}/" . escape('tx/1'))->{json}{traces} }, 4, 'the traces of a deleted queue');
is(get('by-name/shop')->{json}{traces}[0]{queue_name}, undef, 'which has no name any more');

# What is refused.
{
    my %good = (transactionId => 't', partitionId => $nowhere, data => {});
    my $refused = sub { my ($change, $error) = @_; is_error(trace({ %good, %$change }), 400, $error, "refused: $error"); };
    for my $member (qw(transactionId partitionId data))
    {
        my %body = %good;
        delete $body{$member};
        is_error(trace(\%body), 400, "$member is required", "no $member");
        $refused->({ $member => undef }, "$member is required");
    }
    $refused->({ data => $_ }, 'data must be an object') for 1, 'x', [], JSON::PP::true;
    $refused->({ partitionId => $_ }, 'partitionId is not a UUID') for '', 'x', "$nowhere-";
    $refused->({ transactionId => '' }, 'transactionId is empty');
    $refused->({ transactionId => 'x' x 256 }, 'transactionId is longer than 255 characters');
    $refused->({ transactionId => "\x01" }, 'transactionId holds a control character');
    $refused->({ transactionId => 5 }, 'transactionId must be a string');
    $refused->({ consumerGroup => 'x' x 256 }, 'consumerGroup is longer than 255 characters');
    $refused->({ eventType => "a\n" }, 'eventType holds a control character');
    $refused->({ traceNames => $_ }, 'traceNames must be a string') for 5, {}, [5], [ ['x'] ];
    $refused->({ traceNames => $_ }, 'traceNames is empty') for '', [''];
    $refused->({ traceNames => [ 1 .. 101 ] }, 'traceNames must be a string');
    $refused->({ traceNames => [ map { "n$_" } 1 .. 101 ] }, 'traceNames has more than 100 elements');
    is(trace({ %good, traceNames => [ map { "n$_" } 1 .. 100 ], transactionId => "\x{1f422}" x 255 })->{status}, 201, 'at the limits');
    is_error(trace('{"transactionId":"a","transactionId":"b"}'), 400, 'transactionId appears twice', 'a member twice');
    like(trace(qq({"transactionId":"t","partitionId":"$nowhere","data":$_}))->{json}{error}, qr/^data cannot be stored: /, "data that the database refuses: $_")
      for '{"a":"\u0000"}', '{"a":1e999999}';
    like(trace($_)->{json}{error}, qr/^bad body: /, "refused: $_") for '', '{', '[]', '{"data":{"a":"\ud800"}}', "{\"data\":{\"a\":\"\xff\"}}",
      '{"data":' . '{"a":' x 100 . '1' . '}' x 101;
    is_error(get('x/y'), 400, 'partitionId is not a UUID', 'a bad partition id');
    is_error(get("$nowhere/%00"), 400, 'transactionId holds a control character', 'a bad transaction id');
    is_error(get('by-name/%ff'), 400, 'name is not valid UTF-8', 'a bad name');
    is_deeply(get("$nowhere/" . 'x' x 3000)->{json}, { traces => [] }, 'a long transaction id has none');
}

$queen->finish;
