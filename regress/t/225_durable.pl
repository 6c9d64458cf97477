# What is answered is on disk: the commit record lies before the end of what was flushed. Nobody else
# flushes here: the WAL writer is stopped, and no worker runs. Property V-91.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('durable', conf => "queen.workers = off\nautovacuum = off\ncheckpoint_timeout = 1h\n");
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);
$queen->sql('CREATE EXTENSION pg_walinspect');
my $writer = $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});

# Rows whose xmin is the transaction that made the answer true, or one inside it, which its commit record names.
my $segment = 'SELECT xmin FROM queen.log_segments ORDER BY created_at DESC LIMIT 1';
my $cursor = q{SELECT c.xmin FROM queen.log_consumers AS c WHERE c.consumer_group = 'g'};

# Whether the transaction that a request was answered for is on disk when the answer comes.
sub commits
{
    my ($row, $request) = @_;
    my $before = $queen->sql('SELECT pg_current_wal_insert_lsn()');
    $request->();
    my $flushed = $queen->sql('SELECT pg_current_wal_flush_lsn()');
    return $queen->sql(<<"SQL");
SELECT CASE WHEN pg_lsn '$flushed' > '$before'
            THEN (SELECT count(*) FROM pg_get_wal_records_info('$before', least('$flushed', pg_current_wal_flush_lsn()))
                   WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'
                     AND xid || ' ' || description ~ ('\\m' || ($row) || '\\M'))
            ELSE 0 END
SQL
}

sub item { my ($id) = @_; return { queue => 'q', partition => 'p', transactionId => $id, payload => {} }; }
sub take { return $web->pop('q', partition => 'p', consumerGroup => 'g', subscriptionMode => 'all', batch => 1, @_); }
sub letters { return @{ $web->get('/api/v1/dlq?queue=q')->{json}{messages} }; }

$web->push(item('first'));
take(autoAck => 'true');
kill 'STOP', $writer;

is(commits($segment, sub { $web->push(item('a')) }), 1, 'V-91: a push');
is(commits($segment, sub { $web->push(map { item("b$_") } 1 .. 4) }), 1, 'V-91: a push of several messages');
my $poll = $web->connect;
$poll->send('GET', '/api/v1/pop/queue/follow?wait=true&timeout=60000');
QueenTest::wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1 }, 'a pop is parked');
is(commits($segment, sub { $web->push({ queue => 'follow', payload => {} }) }), 1, 'V-91: a push that takes a parked pop along');
is($poll->receive->{status}, 200, 'and answers it');

my @taken;
is(commits($cursor, sub { @taken = take() }), 1, 'V-91: a lease');
is(commits($cursor, sub { $web->ack('completed', @taken) }), 1, 'V-91: an acknowledgement');
@taken = take();
is(commits($cursor, sub { $web->ack('retry', @taken) }), 1, 'V-91: a message that is sent back');
@taken = take();
is(commits($cursor, sub { $web->ack('dlq', @taken) }), 1, 'V-91: a dead letter');
is(commits($cursor, sub { take(autoAck => 'true') }), 1, 'V-91: a pop that acknowledges');
@taken = take();
is(commits($cursor, sub { $web->post("/api/v1/lease/$taken[0]{leaseId}/extend", { seconds => 600 }) }), 1, 'V-91: a longer lease');
my $bundle = {
    operations => [
        { type => 'push', %{ item('c') } },
        { type => 'ack', transactionId => $taken[0]{transactionId}, partitionId => $taken[0]{partitionId}, consumerGroup => 'g', status => 'completed' }
    ],
    requiredLeases => [ $taken[0]{leaseId} ]
};
is(commits($cursor, sub { is($web->post('/api/v1/transaction', $bundle)->{json}{success}, JSON::PP::true, 'a transaction') }), 1, 'V-91: a transaction');
my ($letter) = letters();
is(commits($segment, sub { is($web->post("/api/v1/dlq/$letter->{id}/replay", {})->{json}{result}, 'moved', 'a letter is moved') }), 1, 'V-91: a dead letter that is replayed');
is(commits($cursor, sub { $web->post('/api/v1/consumer-groups/g/queues/q/seek', { beginning => JSON::PP::true() }) }), 1, 'V-91: a seek');
is(commits($segment, sub { $queen->sql(q{SELECT queen.push('q', '{}')}) }), 1, 'V-91: a push in SQL');

# It would be seen.
is(commits($segment, sub { $queen->sql(q{SET synchronous_commit = off; SELECT queen.push('q', '{}')}) }), 0, 'one that does not wait for the disk is not there');

kill 'CONT', $writer;
$queen->finish;
