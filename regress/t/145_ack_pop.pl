# Acknowledgements and pops that are ready together: one transaction, and neither is the other's problem.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('ack_pop');
my $web = $queen->start_frontend(args => [ '--threads', 1, '--read-connections', 1, '--lock-timeout', 60000 ]);

sub requests { my ($kind) = @_; return $web->get('/metrics')->{json}{queen}{"${kind}Requests"}; }

# Sends a request on a connection of its own; it has arrived.
sub arrive
{
    my ($kind, @request) = @_;
    my $before = requests($kind);
    my $connection = $web->connect;
    $connection->send(@request);
    wait_until(sub { requests($kind) > $before }, "the $kind has arrived");
    return $connection;
}

sub pop_of { my ($partition, $group) = @_; return ('GET', "/api/v1/pop/queue/q/partition/$partition?consumerGroup=$group&batch=2&subscriptionMode=all"); }

sub ack_of
{
    my ($group, @messages) = @_;
    return ('POST', '/api/v1/ack/batch', {
            consumerGroup => $group,
            acknowledgments => [ map { my $message = $_; +{ map { $_ => $message->{$_} } qw(transactionId partitionId leaseId) } } @messages ] });
}

# Sends the requests while the only connection for them is busy, so that they are ready together;
# then has "change" done, and lets them go. The answers, in the order of the requests.
sub together
{
    my ($change, @requests) = @_;
    my $session = $queen->node->background_psql('postgres');
    $session->query_safe('BEGIN; LOCK TABLE queen.log_consumers IN ACCESS EXCLUSIVE MODE');
    my $first = arrive('pop', pop_of('first', 'g'));
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web' AND wait_event_type = 'Lock'}) == 1 }, 'the connection is busy');
    my @connections = map { arrive(@$_) } @requests;
    $session->query_safe($change) if $change;
    $session->query_safe('COMMIT');
    $session->quit;
    $first->receive;
    return map { $_->receive } @connections;
}

# By which transaction the cursor of a partition was written.
sub writer
{
    my ($partition, $group) = @_;
    return $queen->sql(qq{SELECT c.xmin FROM queen.log_consumers AS c JOIN queen.log_partitions AS p ON p.id = c.partition_id
                           WHERE p.name = '$partition' AND c.consumer_group = '$group'});
}
sub data { my ($answer) = @_; return join ' ', map { $_->{data} } @{ $answer->{json}{messages} || [] }; }
sub acked { my ($answer) = @_; return join ' ', map { ($_->{success} ? 'ok' : $_->{error}) . ($_->{leaseReleased} ? ' released' : '') } @{ $answer->{json} }; }

$web->push(map { my $partition = $_; map { { queue => 'q', partition => $partition, payload => "$partition$_", transactionId => "$partition$_" } } 1 .. 6 } 'a', 'b', 'first');

my @a = $web->pop('q', partition => 'a', consumerGroup => 'g', batch => 2, subscriptionMode => 'all');
my @b = $web->pop('q', partition => 'b', consumerGroup => 'other', batch => 2, subscriptionMode => 'all');
my ($ack, $pop) = together('', [ 'ack', ack_of('g', @a) ], [ 'pop', pop_of('b', 'g') ]);
is(acked($ack), 'ok released ok released', 'the acknowledgement is answered');
is(data($pop), 'b1 b2', 'and the pop');
is(writer('a', 'g'), writer('b', 'g'), 'one transaction did both');
isnt(writer('first', 'g'), writer('b', 'g'), 'the call that was in flight is another one');

# The pop has what the acknowledgement frees; several of each go together.
@a = $web->pop('q', partition => 'a', consumerGroup => 'g', batch => 2, subscriptionMode => 'all');
my @answers = together('', [ 'ack', ack_of('g', @a) ], [ 'ack', ack_of('other', @b) ], [ 'pop', pop_of('a', 'g') ], [ 'pop', pop_of('b', 'other') ]);
is(join(', ', acked($answers[0]), acked($answers[1])), 'ok released ok released, ok released ok released', 'two acknowledgements');
is(join(', ', map { data($_) } @answers[ 2, 3 ]), 'a5 a6, b3 b4', 'two pops go on where they ended');
is(writer('a', 'g'), writer('b', 'other'), 'in one transaction');

# One that fails takes nothing along: each goes out again alone.
@a = map { @{ $_->{json}{messages} } } $answers[2];
($ack, $pop) = together('ALTER TABLE queen.consumer_groups_metadata RENAME TO away', [ 'ack', ack_of('g', @a) ], [ 'pop', pop_of('a', 'new') ]);
is(acked($ack), 'ok released ok released', 'the acknowledgement beside a pop that fails');
is($pop->{status}, 500, 'the pop fails');
is($queen->sql(q{SELECT min(committed) FROM queen.log_consumers AS c JOIN queen.log_partitions AS p ON p.id = c.partition_id
                  WHERE p.name = 'a' AND c.consumer_group = 'g'}), 5, 'what was acknowledged is');
$queen->sql('ALTER TABLE queen.away RENAME TO consumer_groups_metadata');
my @b2 = @{ $answers[3]{json}{messages} };
($ack, $pop) = together(q{CREATE FUNCTION refuse_letter() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
                          CREATE TRIGGER fail BEFORE INSERT ON queen.log_dlq FOR EACH ROW EXECUTE FUNCTION refuse_letter()},
    [ 'ack', 'POST', '/api/v1/ack', { consumerGroup => 'other', status => 'dlq', map { $_ => $b2[0]{$_} } qw(transactionId partitionId leaseId) } ],
    [ 'pop', pop_of('a', 'other') ]);
is($ack->{status}, 500, 'an acknowledgement that fails');
is(data($pop), 'a1 a2', 'and the pop beside it');
$queen->sql('DROP TRIGGER fail ON queen.log_dlq');

# The backend dies in the middle: nobody is told that it was done, and it was not.
@a = $web->pop('q', partition => 'a', consumerGroup => 'late', batch => 2, subscriptionMode => 'all');
{
    my $session = $queen->node->background_psql('postgres');
    $session->query_safe('BEGIN; LOCK TABLE queen.log_segments IN ACCESS EXCLUSIVE MODE');
    my $lone = arrive('ack', ack_of('late', @a));
    wait_until(sub { $queen->sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'queen_web' AND wait_event_type = 'Lock'}) == 1 }, 'its backend is terminated');
    is($lone->receive->{status}, 503, 'the outcome is not known');
    $session->query_safe('ROLLBACK');
    $session->quit;
}
wait_until(sub { $web->get('/health')->{status} == 200 }, 'the front end is back');
($ack, $pop) = together('', [ 'ack', ack_of('late', @a) ], [ 'pop', pop_of('a', 'late') ]);
is(acked($ack), 'ok released ok released', 'it can be repeated');
is(data($pop), 'a3 a4', 'and what follows popped');

$queen->finish;
