# Lease expiry: the batch of a lease that ran out is free at once, at no charge.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('lease_expiry', conf => "queen.lease_sweep_interval = 1h\n");
my $node = $queen->node;
wait_for_workers($queen);

# The cursor: worker, lease end, batch end, attempts, retries.
sub cursor
{
    my ($queue, $group) = @_;
    $group //= '__QUEUE_MODE__';
    return $queen->sql(<<SQL);
SELECT worker_id IS NOT NULL, lease_expires_at IS NOT NULL, batch_end, attempt_offset, attempt_count, batch_retry_count
  FROM queen.log_consumers WHERE partition_id = test.partition_id('$queue', 'p') AND consumer_group = '$group'
SQL
}

sub wait_for_release
{
    my ($queue, $group) = @_;
    wait_until(sub { cursor($queue, $group) =~ /^f/ }, "the lease on $queue is released");
    return;
}

# V-43: expiry charges nothing, whoever sees it; the attempts are counted at the next claim.
$queen->sql(q{SELECT test.push('q', 'p', 'a', 'b', 'c')});
for my $round (1 .. 7)
{
    is($queen->sql('SELECT first, last, attempt FROM test.pop(' . "'q', worker => $round, batch => 2, lease => 1)"),
        "0|1|$round", "delivery $round");
    wait_for_release('q');
    is(cursor('q'), "f|f||0|$round|0", 'the lease is gone, the attempts stay, no retry is charged');
}
is($queen->sql(q{SELECT leases, leases_expired FROM queen.pg_stat_queen_queues WHERE queue = 'q'}), '7|7', 'both are counted');
is($queen->sql(q{SELECT error FROM test.ack('q', 'p', 7, '{a}')}), 'invalid or expired lease', 'the old lease is worth nothing');

# A renewed lease lives on; the schedule follows.
$queen->sql(q{SELECT test.push('renewed', 'p', 'a'); SELECT * FROM test.pop('renewed', worker => 1, lease => 1)});
$queen->sql(q{SELECT * FROM queen.log_renew(test.tenant(), test.worker(1), 3600, ARRAY[test.partition_id('renewed', 'p')])});
$queen->sql(q{SELECT * FROM test.pop('q', worker => 9, lease => 2)});
wait_for_release('q');
like(cursor('renewed'), qr/^t/, 'a renewed lease outlives its first end');

# One that was acknowledged and taken again is judged by its new end.
$queen->sql(<<'SQL');
SELECT test.push('again', 'p', 'a', 'b');
SELECT * FROM test.pop('again', worker => 1, batch => 1, lease => 1);
SELECT * FROM test.ack('again', 'p', 1, '{a}');
SELECT * FROM test.pop('again', worker => 2, batch => 1, lease => 3600);
SELECT * FROM test.pop('q', worker => 10, lease => 2);
SQL
wait_for_release('q');
like(cursor('again'), qr/^t/, 'a later lease of the same cursor is left alone');
$queen->sql(<<'SQL');
SELECT * FROM test.ack('again', 'p', 2, '{b}');
SELECT test.push('again', 'p', 'c');
SELECT * FROM test.pop('again', worker => 3, batch => 1, lease => 1);
SQL
wait_for_release('again');
pass('also when it is shorter');

# Long names of groups, and many leases at once.
my $group = 'ü' x 255;
$queen->sql("SELECT * FROM test.pop('renewed', NULL, '$group', worker => 3, lease => 1)");
wait_for_release('renewed', $group);
pass('a group with the longest name');
$queen->sql(q{SELECT count(*) FROM generate_series(1, 3000) AS i, LATERAL test.push('wide', 'p' || i, 'a') AS v});
is($queen->sql(q{SELECT count(*) FROM generate_series(1, 6) AS w, LATERAL test.pop('wide', worker => w, batch => 10000, partitions => 500, lease => 2)}),
    3000, 'thousands of leases');
wait_until(sub { $queen->sql(q{SELECT leases_expired FROM queen.pg_stat_queen_queues WHERE queue = 'wide'}) == 3000 }, 'are all released');

# Leases that the schedule knows nothing of: the worker was away, and came back.
$queen->sql(q{SELECT test.push('missed', 'p', 'a')});
$node->append_conf('postgresql.conf', "queen.workers = off\n");
$node->reload;
wait_until(sub { !%{ workers($queen) } }, 'no worker runs');
$queen->sql(q{SELECT * FROM test.pop('missed', worker => 1, lease => 1)});
$node->append_conf('postgresql.conf', "queen.workers = on\n");
$node->reload;
wait_for_release('missed');
pass('a new worker finds the leases that exist');

# ... or somebody set it by hand: the sweep finds it.
wait_for_workers($queen);
$queen->sql(q{SELECT * FROM test.pop('missed', worker => 2, lease => 3600); SELECT test.expire('missed')});
$node->append_conf('postgresql.conf', "queen.lease_sweep_interval = 1s\n");
$node->reload;
replace_worker($queen, 'lease expiry');
wait_for_release('missed');
pass('the sweep finds what the schedule missed');

# Over HTTP: whoever waits gets the batch.
my $web = $queen->start_frontend(args => [ '--poll-initial', 60000, '--poll-max', 60000 ]);
$web->push({ queue => 'http', partition => 'p', payload => 1, transactionId => 't1' });
my ($first) = $web->pop('http', leaseSeconds => 1);
my $connection = $web->connect;
$connection->send('GET', '/api/v1/pop/queue/http?wait=true&timeout=60000');
my $response = $connection->receive;
is($response->{status}, 200, 'a parked pop gets the batch of a lease that ran out');
is($response->{json}{messages}[0]{transactionId}, 't1', 'the same message');
is($response->{json}{messages}[0]{deliveryAttempt}, 2, 'in its second delivery');
isnt($response->{json}{messages}[0]{leaseId}, $first->{leaseId}, 'under another lease');

# With another group on the same partition nothing overlaps: V-20.
is($queen->sql(q{SELECT count(*) FROM queen.log_consumers WHERE worker_id IS NOT NULL AND lease_expires_at < clock_timestamp() - interval '1 minute'}),
    0, 'no lease is left behind');
$queen->finish;
