# POST /api/v1/ack, /ack/batch and /lease/:leaseId/extend, GET /api/v1/dlq.
use strict;
use warnings;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use QueenTest qw(is_error wait_until);
use Test::More;

my $queen = QueenTest->new('ack', conf => "synchronous_commit = off\n");
my $web = $queen->start_frontend;
my $nobody = '00000000-0000-4000-8000-000000000000';

# Pushes payloads that are their own transaction ids.
sub fill
{
    my ($queue, @names) = @_;
    $web->push(map { { queue => $queue, payload => $_, transactionId => $_ } } @names);
    return;
}
sub configure { my ($queue, %options) = @_; $web->post('/api/v1/configure', { queue => $queue, options => \%options }); return; }
sub names { return join ' ', map { $_->{data} } @_; }

# An acknowledgement of a message as pop returned it; fields given as undef are left out.
sub ack_of
{
    my ($message, %fields) = @_;
    my %ack = ((map { $_ => $message->{$_} } qw(transactionId partitionId leaseId)), %fields);
    return { map { $_ => $ack{$_} } grep { defined $ack{$_} } keys %ack };
}
sub single { my ($message, %fields) = @_; return $web->post('/api/v1/ack', ack_of($message, %fields)); }

sub batch
{
    my ($group, @acks) = @_;
    my $body = { acknowledgments => \@acks, defined $group ? (consumerGroup => $group) : () };
    my $response = $web->post('/api/v1/ack/batch', $body);
    die "ack answered $response->{status}: $response->{body}" unless $response->{status} == 200;
    return @{ $response->{json} };
}

# An item of an answer, in short: "ok", "noop" or the error, then what became of lease and message.
sub verdict
{
    my ($item) = @_;
    return join ' ', $item->{success} ? ($item->{noop} ? 'noop' : 'ok') : $item->{error},
      $item->{leaseReleased} ? 'released' : (), $item->{dlq} ? 'dlq' : ();
}
sub verdicts { return join ', ', map { verdict($_) } @_; }
sub cursor
{
    my ($queue, $group) = @_;
    $group //= '__QUEUE_MODE__';
    return $queen->sql(qq{SELECT c.committed, coalesce(c.batch_end::text, '-'), c.batch_retry_count
        FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
        JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = '$queue' AND c.consumer_group = '$group'});
}

# The answer, field by field.
{
    fill('fields', 'a', 'b');
    my @messages = $web->pop('fields');
    my $response = single($messages[0]);
    is($response->{status}, 200, 'an acknowledgement');
    is($response->{headers}{'content-type'}, 'application/json', 'is answered in JSON');
    my ($true, $false) = (JSON::PP::true, JSON::PP::false);
    my %item = (index => 0, transactionId => 'a', success => $true, error => undef, leaseReleased => $false, dlq => $false, noop => $false);
    is_deeply($response->{json}, [ \%item ], 'an array of one, for a single one, too');
    my @items = batch(undef, ack_of($messages[0]), ack_of($messages[1]), ack_of($messages[1], transactionId => 'c'));
    is_deeply(
        \@items,
        [
            { %item, noop => $true },
            { %item, index => 1, transactionId => 'b', leaseReleased => $true },
            { %item, index => 2, transactionId => 'c', success => $false, error => 'unresolved transaction id' }
        ],
        'an item for each acknowledgement, in the order of the request');
    is_deeply([ batch(undef) ], [], 'none for none');
}

# How a status may be written.
for my $status (undef, qw(completed success acked ok))
{
    my $name = $status // 'none';
    fill("status-$name", 'a');
    is(verdict(single(($web->pop("status-$name"))[0], status => $status)->{json}[0]), 'ok released', "status $name");
    is(cursor("status-$name"), '0|-|0', 'completes');
}
{
    fill('null', 'a');
    my ($message) = $web->pop('null');
    my $body = JSON::PP->new->encode({ %{ ack_of($message) }, status => undef, error => undef, consumerGroup => undef });
    is(verdict($web->post('/api/v1/ack', $body)->{json}[0]), 'ok released', 'null is like nothing at all');
}
for my $status ('failed', 'Completed', 'error', '')
{
    fill("failed-$status", 'a');
    is(verdict(single(($web->pop("failed-$status"))[0], status => $status)->{json}[0]), 'ok released', "status '$status'");
    is(cursor("failed-$status"), '-1|-|1', 'is a failure, and charged');
}
fill('retry', 'a');
is(verdict(single(($web->pop('retry'))[0], status => 'retry')->{json}[0]), 'ok released', 'status retry');
is(cursor('retry'), '-1|-|0', 'is not charged');
fill('dlq', 'a');
is(verdict(single(($web->pop('dlq'))[0], status => 'dlq')->{json}[0]), 'ok released dlq', 'status dlq');
is(cursor('dlq'), '0|-|0', 'passes the message');

# Escapes, groups, leases.
{
    fill('forms', "a/\x{e9}", 'b');
    my @messages = $web->pop('forms', consumerGroup => 'g', subscriptionMode => 'all');
    my $message = $messages[0];
    is(verdict(single($message)->{json}[0]), 'consumer not found', 'without its group');
    is(verdict(single($message, consumerGroup => '')->{json}[0]), 'consumer not found', 'an empty group is none');
    my ($partition, $lease) = @$message{qw(partitionId leaseId)};
    my $response = $web->post('/api/v1/ack',
        qq({"tr\\u0061nsactionId":"\\u0061\\/\\u00e9","partitionId":"$partition","leaseId":"\U$lease\E","consumerGroup":"\\u0067","x":[1]}));
    is(verdict($response->{json}[0]), 'ok', 'names are compared after decoding, ids in either case');
    is($response->{json}[0]{transactionId}, "a/\x{e9}", 'and come back decoded');
    is(verdicts(batch('g', { %{ ack_of($messages[1]) }, consumerGroup => 'other' })), 'ok released',
        'in a batch the group inside an item does not count');
}
{
    fill('fence', 'a');
    my ($message) = $web->pop('fence');
    is(verdict(single($message, leaseId => $nobody)->{json}[0]), 'invalid or expired lease', "V-46: another's lease");
    is(verdict(single($message, leaseId => 'no-uuid')->{json}[0]), 'invalid or expired lease', 'V-46: a lease that is no UUID');
    is(cursor('fence'), '-1|0|0', 'V-46: changes nothing');
    is(verdict(single($message, leaseId => undef)->{json}[0]), 'ok released', 'V-46: without a lease it is not checked');
    is(verdict(single($message)->{json}[0]), 'invalid or expired lease', 'V-46: a lease is over when its batch is');
    is(verdict(single($message, leaseId => '')->{json}[0]), 'noop', 'V-49: completed below the cursor');
    is(verdict(single($message, leaseId => undef, status => 'failed')->{json}[0]), 'already committed', 'V-49: a nack below it');

    fill('fence', 'b');
    ($message) = $web->pop('fence', leaseSeconds => 1);
    wait_until(sub { verdict(single($message, transactionId => 'x')->{json}[0]) eq 'invalid or expired lease' }, 'the lease expires');
    is(verdict(single($message)->{json}[0]), 'invalid or expired lease', 'V-46: an expired lease is refused');
    is(verdict(single($message, partitionId => $nobody)->{json}[0]), 'consumer not found', 'an unknown partition');
}

# What is missing or malformed.
{
    fill('bad', 'a');
    my ($message) = $web->pop('bad');
    my $failed = sub { my ($error, $name, %fields) = @_; is(verdicts(batch(undef, ack_of($message, %fields))), $error, $name) };
    for my $field (qw(transactionId partitionId))
    {
        is_error(single($message, $field => undef), 400, "$field is required", "no $field");
        is_error(single($message, $field => ''), 400, "$field is required", "an empty $field");
        $failed->("$field is required", "no $field in a batch: a failed item", $field => undef);
        $failed->("$field is required", "an empty $field in a batch", $field => '');
    }
    is(verdict(single($message, partitionId => 'p')->{json}[0]), 'partitionId is not a UUID', 'a partition id that is no UUID');
    $failed->('partitionId is not a UUID', 'in a batch, too', partitionId => 'p');
    $failed->('unresolved transaction id', 'an id that no message has', transactionId => 'x' x 70000);
    $failed->('unresolved transaction id', 'an id that no message can have', transactionId => "\n");
    is(verdicts(batch(undef, { transactionId => 'a' }, ack_of($message), { partitionId => 'x', transactionId => 'b' })),
        'partitionId is required, ok released, partitionId is not a UUID', 'V-47: bad items do not stop the others');

    my $refused = sub { my ($path, $body, $error, $name) = @_; is_error($web->post($path, $body), 400, $error, $name) };
    $refused->('/api/v1/ack', '', 'bad body: unexpected end at byte 0', 'no body');
    $refused->('/api/v1/ack', '[]', 'bad body: an object was expected at byte 0', 'an array');
    $refused->('/api/v1/ack', '{"transactionId":"a"', 'bad body: unexpected end at byte 20', 'half a body');
    $refused->('/api/v1/ack', { transactionId => 'a', partitionId => $nobody, $_ => 5 }, "$_ must be a string", "a number as $_")
      for qw(transactionId partitionId leaseId status error consumerGroup);
    $refused->('/api/v1/ack', '{"transactionId":"a","transactionId":"b"}', 'transactionId appears twice', 'a member twice');
    $refused->('/api/v1/ack', { transactionId => 'a', partitionId => $nobody, consumerGroup => "\n" },
        'consumerGroup holds a control character', 'a group that no name is');
    $refused->('/api/v1/ack/batch', '{}', 'acknowledgments is required and must be an array', 'no array');
    $refused->('/api/v1/ack/batch', { acknowledgments => {} }, 'bad body: an array was expected at byte 19', 'another thing');
    $refused->('/api/v1/ack/batch', { acknowledgments => [1] }, 'bad body: an object was expected at byte 20', 'no objects');
    $refused->('/api/v1/ack/batch', '{"acknowledgments":[],"acknowledgments":[]}', 'acknowledgments appears twice', 'two arrays');
    $refused->('/api/v1/ack/batch', { acknowledgments => [], consumerGroup => 'g' x 256 },
        'consumerGroup is longer than 255 characters', 'a long group');

    my $many = '{},' x 99999 . '{}';
    my $answer = $web->post('/api/v1/ack/batch', qq({"acknowledgments":[$many]}));
    is(() = $answer->{body} =~ /transactionId is required/g, 100000, '100,000 acknowledgments');
    $refused->('/api/v1/ack/batch', qq({"acknowledgments":[$many,{}]}),
        'acknowledgments has more than 100000 elements', 'one more');
}

# A batch: the lowest negative signal acts.
{
    configure('mixed', retryLimit => 1);
    fill('mixed', 'a' .. 'f');
    my %by_name = map { $_->{data} => $_ } $web->pop('mixed');
    is(verdicts(batch(undef, map { ack_of($by_name{ $_->[0] }, status => $_->[1]) } [ 'f', 'completed' ], [ 'c', 'failed' ], [ 'b', 'completed' ], [ 'd', 'dlq' ])),
        'ok released, ok released, ok released, ok released', 'V-45: completed, failed and dlq in one call');
    is(cursor('mixed'), '1|-|1', 'V-45: the cursor stops before the lowest nack, charged once');
    my @again = $web->pop('mixed');
    is(names(@again), 'c d e f', 'V-45: what is completed above it comes again');
    is(verdicts($web->ack('failed', @again)->@*), 'ok released dlq, ok released, ok released, ok released',
        'V-42: the next failure of the batch dead-letters its first message');
    is(cursor('mixed'), '2|-|0', 'V-42: and passes it');
    is(names(@again = $web->pop('mixed')), 'd e f', 'V-42: those after it come again');
    is(verdict(single($again[2])->{json}[0]), 'ok released', 'V-40: the last message completes the batch');

    fill('several', 'a');
    $web->push({ queue => 'several', partition => 'p2', payload => 'b', transactionId => 'b' });
    my @both = sort { $a->{data} cmp $b->{data} } $web->pop('several', partitions => 2);
    is(verdicts(batch(undef, ack_of($both[0], status => 'failed'), ack_of($both[1]))), 'ok released, ok released',
        'partitions of one lease are acknowledged together');
    is(names($web->pop('several', partitions => 2)), 'a', 'each with its own outcome');

    $web->push(map { { queue => 'alternate', partition => $_ lt 'd' ? 'p1' : 'p2', payload => $_, transactionId => $_ } } 'a' .. 'f');
    my %m = map { $_->{data} => $_ } $web->pop('alternate', partitions => 2);
    is(verdicts(batch(undef,
            ack_of($m{a}), ack_of($m{d}), ack_of($m{b}, partitionId => undef), ack_of($m{b}), ack_of($m{b}, transactionId => 'x'),
            ack_of($m{e}), ack_of($m{c}, status => 'dlq', error => 'why'), ack_of($m{f}, leaseId => $nobody))),
        'ok released, ok, partitionId is required, ok released, unresolved transaction id, '
          . 'ok, ok released dlq, invalid or expired lease',
        'items that alternate get the verdicts that are theirs');
    is($web->get('/api/v1/dlq?queue=alternate')->{json}{messages}[0]{errorMessage}, 'why', 'and their texts');

    configure('drop', retryLimit => 0, deadLetterQueue => JSON::PP::false, dlqAfterMaxRetries => JSON::PP::false);
    fill('drop', 'a', 'b');
    is(verdict(single(($web->pop('drop'))[0], status => 'failed')->{json}[0]), 'ok released', 'V-44: dead letters switched off');
    is(names($web->pop('drop')), 'b', 'V-44: the message is dropped');
    is($web->get('/api/v1/dlq?queue=drop')->{json}{total}, 0, 'V-44: and filed nowhere');
}

# The life of a partition: segments [4,6] and [7,11], a group at 6, three retries.
{
    fill('life', map { "m$_" } 0 .. 6);
    $web->ack('completed', $web->pop('life'));
    fill('life', map { "m$_" } 7 .. 11);
    my @batch = $web->pop('life', batch => 3, leaseSeconds => 1);
    is(names(@batch), 'm7 m8 m9', 'a batch of three');
    is(verdict(single($batch[1])->{json}[0]), 'ok', 'V-41: acknowledging the second keeps the lease');
    is(cursor('life'), '8|9|0', 'V-41: and completes the first');
    wait_until(sub { @batch = $web->pop('life') }, 'the lease expires');
    is(names(@batch), 'm9 m10 m11', 'V-41: the rest comes again, from the middle of a segment');
    is($batch[0]{deliveryAttempt}, 2, 'V-41: as a redelivery');
    is(verdicts(batch(undef, ack_of($batch[0]), ack_of($batch[1], status => 'failed'), ack_of($batch[2]))),
        'ok released, ok released, ok released', 'one of them fails');
    is(cursor('life'), '9|-|1', 'one retry is used');
    for (2 .. 4)
    {
        @batch = $web->pop('life');
        is(names(@batch), 'm10 m11', 'V-42: it comes again');
        single($batch[0], status => 'failed', error => "failure $_");
    }
    is(cursor('life'), '10|-|0', 'V-42: and the fourth failure files it');
    is(names(@batch = $web->pop('life')), 'm11', 'V-42: the one after it is free');
    my $letter = $web->get('/api/v1/dlq?queue=life')->{json}{messages}[0];
    is("$letter->{transactionId} $letter->{retryCount} $letter->{errorMessage}", 'm10 3 failure 4', 'V-42: the dead letter');
}

# Dead letters.
{
    fill('letters', 'a' .. 'e');
    my %by_name = map { $_->{data} => $_ } $web->pop('letters', consumerGroup => 'billing', subscriptionMode => 'all');
    my $message = $by_name{a};
    single($message, status => 'dlq', error => 'card "declined"', consumerGroup => 'billing');
    my $answer = $web->get('/api/v1/dlq?queue=letters')->{json};
    my $letter = $answer->{messages}[0];
    like($letter->{id}, qr/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, 'a dead letter has an id');
    like($letter->{failedAt}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'a time in milliseconds');
    is_deeply(
        $answer,
        {
            messages => [
                {
                    id => $letter->{id},
                    transactionId => 'a',
                    partitionId => $message->{partitionId},
                    queue => 'letters',
                    partition => 'Default',
                    consumerGroup => 'billing',
                    errorMessage => 'card "declined"',
                    retryCount => 0,
                    data => 'a',
                    producerSub => undef,
                    createdAt => $letter->{failedAt},
                    failedAt => $letter->{failedAt}
                }
            ],
            pagination => { limit => 100, offset => 0 },
            total => 1
        },
        'the fields of the list');

    for (1 .. 2)
    {
        single(($web->pop('letters', consumerGroup => 'billing', batch => 1))[0], status => 'dlq', consumerGroup => 'billing');
    }
    single(($web->pop('letters', batch => 1))[0], status => 'dlq');
    my $list = sub { my ($query) = @_; return join ' ', map { "$_->{data}" } @{ $web->get("/api/v1/dlq?$query")->{json}{messages} } };
    is($list->('queue=letters'), 'a c b a', 'newest first');
    is($list->('queue=letters&consumerGroup=billing'), 'c b a', 'of one group');
    is($list->('queue=letters&consumerGroup=__QUEUE_MODE__'), 'a', 'of queue mode');
    is($list->('queue=letters&consumerGroup=&partition=&from=&to=&x=y'), 'a c b a', 'an empty filter is none, unknown ones do not matter');
    is($list->('queue=letters&partition=Default&from=2020-01-01T00:00:00Z&to=2120-01-01'), 'a c b a', 'of a partition and a time');
    is($list->('queue=letters&partition=x') . $list->('queue=letters&from=2120-01-01') . $list->('queue=letters&to=2020-01-01'), '', 'of others');
    is_error($web->get("/api/v1/dlq?$_=y"), 400, "$_ is not a time", "a $_ that is none") for qw(from to);
    is($list->('queue=letters&limit=2'), 'a c', 'a page');
    is($list->('queue=letters&limit=2&offset=2'), 'b a', 'the next');
    is($list->('queue=letters&limit=x&offset=-1'), 'a c b a', 'numbers that are none mean the default');
    is($list->('queue=nothing'), '', 'another queue');
    ok($web->get('/api/v1/dlq')->{json}{total} > 4, 'all queues');
    is_deeply($web->get('/api/v1/dlq?limit=5000&offset=7')->{json}{pagination}, { limit => 1000, offset => 7 }, 'the answer says what the page is');
    is($web->get('/api/v1/dlq?limit=0')->{json}{total}, 0, 'an empty page');
    is_error($web->get('/api/v1/dlq?queue=%ff'), 400, 'queue, partition or consumerGroup is not a valid name', 'a filter that no name is');
    is(($web->get('/api/v1/dlq?queue=letters&limit=2')->{json}{messages}[1]{errorMessage}), 'Retries exhausted', 'a nack without a text');

    # Payloads and texts that a text column of PostgreSQL could not hold.
    $web->post('/api/v1/push', '{"items":[{"queue":"nul","payload":{"a":"\u0000"},"transactionId":"x"}]}');
    ($message) = $web->pop('nul');
    my $body = JSON::PP->new->encode({ %{ ack_of($message) }, status => 'dlq', error => "a\0b" });
    is(verdict($web->post('/api/v1/ack', $body)->{json}[0]), 'ok released dlq', 'V-55: a payload with code point 0 is filed');
    my $response = $web->get('/api/v1/dlq?queue=nul');
    like($response->{body}, qr/"data":\{"a":"\\u0000"\}/, 'V-55: byte for byte');
    is($response->{json}{messages}[0]{errorMessage}, 'a b', 'in a text it becomes a space');
}

# Leases are extended.
{
    my $extend = sub { my ($lease, $body) = @_; return $web->post("/api/v1/lease/$lease/extend", $body) };
    $web->push(map { { queue => 'lease', partition => "p$_", payload => 1 } } 1 .. 3);
    my ($message) = $web->pop('lease', partitions => 3, leaseSeconds => 10);
    my $lease = $message->{leaseId};
    my $left = sub {
        my $response = $extend->($lease, @_);
        my $answer = $response->{json};
        is("$response->{status} $answer->{success} $answer->{renewed}", '200 1 3', 'all partitions of the lease');
        is("$answer->{newExpiresAt} $answer->{lease_expires_at}", "$answer->{expiresAt} $answer->{expiresAt}", 'one time, three names');
        is($queen->sql("SELECT count(*) FROM queen.log_consumers WHERE worker_id = '$lease' AND lease_expires_at >= '$answer->{expiresAt}'"),
            3, 'is when they end');
        return $queen->sql("SELECT round(extract(epoch FROM '$answer->{expiresAt}'::timestamptz - clock_timestamp()))");
    };
    my $between = sub { my ($least, $most, $seconds, $name) = @_; ok($least <= $seconds && $seconds <= $most, $name) or diag $seconds };
    $between->(1, 10, $left->('{"seconds":1}'), 'V-52: a lease is never shortened');
    $between->(1, 10, $left->("{\"seconds\":$_}"), "V-52: seconds $_ counts as 1") for 0, -5;
    $between->(55, 60, $left->(undef), 'no body means 60 seconds');
    $between->(55, 60, $left->($_), "so does '$_'") for '', '{}', '{"seconds":', '[]', '{"seconds":"90"}', '{"seconds":1.5}', '{"seconds":null}';
    $between->(110, 120, $left->('{"sec\u006fnds":120}'), '120 are 120');
    $between->(86395, 86400, $left->('{"seconds":999999999}'), 'and a day is the most');

    my %nothing = (success => JSON::PP::false, renewed => 0, newExpiresAt => undef, expiresAt => undef, lease_expires_at => undef);
    for my $unknown ($nobody, 'no-uuid')
    {
        my $response = $extend->($unknown, '{}');
        is($response->{status}, 200, "$unknown is answered");
        is_deeply($response->{json}, { leaseId => $unknown, %nothing }, 'but nothing is extended');
    }
    my $short = ($web->pop('lease', consumerGroup => 'g', subscriptionMode => 'all', leaseSeconds => 1))[0]{leaseId};
    wait_until(sub { $queen->sql("SELECT count(*) FROM queen.log_consumers WHERE worker_id = '$short' AND lease_expires_at > clock_timestamp()") eq '0' },
        'the lease expires');
    is_deeply($extend->($short, '{}')->{json}, { leaseId => $short, %nothing }, 'V-52: an expired lease is not revived');
}

$queen->finish;
