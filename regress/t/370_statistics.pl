# Counters count what commits; lags are exact.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('statistics', conf => "queen.max_tracked_queues = 16\n");
my $node = $queen->node;
wait_for_workers($queen);

sub counters
{
    my ($queue, $columns) = @_;
    return $queen->sql("SELECT $columns FROM queen.pg_stat_queen_queues WHERE queue = '$queue'");
}

# Pushes, and what is rolled back.
$queen->sql(q{SELECT test.push('q', 'p', 'a', 'b', 'c'); SELECT test.push('q', 'p', 'b')});
is(counters('q', 'pushes, push_messages, duplicates'), '1|3|1', 'pushes and duplicates');
is(counters('q', 'push_raw_bytes > 0 AND push_bytes > push_raw_bytes'), 't', 'bytes before and after packing, which here does not compress');
$queen->sql(q{BEGIN; SELECT test.push('q', 'p', 'd'); ROLLBACK});
is(counters('q', 'pushes'), 1, 'a push that is rolled back does not count');
$queen->sql(<<'SQL');
BEGIN;
SELECT test.push('q', 'p', 'd');
SAVEPOINT s1;
SELECT test.push('q', 'p', 'e');
SAVEPOINT s2;
SELECT test.push('q', 'p', 'f');
RELEASE s2;
ROLLBACK TO s1;
SAVEPOINT s3;
SELECT test.push('q', 'p', 'g');
RELEASE s3;
COMMIT;
SQL
is(counters('q', 'pushes, push_messages'), '3|5', 'of savepoints, only those that were kept count');
is($queen->sql(q{SELECT last_offset FROM queen.log_partitions WHERE id = test.partition_id('q', 'p')}), 4, 'as many as are stored');
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT test.push('q', 'p', 'h')});
is(counters('q', 'pushes'), 3, 'an open transaction does not count');
$open->query_safe('COMMIT');
is(counters('q', 'pushes'), 4, 'until it commits');
$open->quit;

# Pops and acks by outcome.
$queen->sql(<<'SQL');
SELECT queen.log_configure(test.tenant(), 'q', NULL, NULL, '{"retryLimit": 1}', 'merge');
SELECT * FROM test.pop('q', worker => 1, batch => 2);
SELECT * FROM test.pop('q', worker => 2);
SELECT * FROM test.ack('q', 'p', 1, '{b}');
SELECT * FROM test.pop('q', worker => 3, batch => 2);
SELECT * FROM test.ack('q', 'p', 3, '{c}', '{retry}');
SELECT * FROM test.pop('q', worker => 4, batch => 2);
SELECT * FROM test.ack('q', 'p', 4, '{c}', '{failed}');
SELECT * FROM test.pop('q', worker => 5, batch => 2);
SELECT * FROM test.ack('q', 'p', 5, '{c}', '{failed}');
SELECT * FROM test.pop('q', worker => 6, auto => true, batch => 1);
SQL
is(counters('q', 'pops, empty_pops, pop_messages, leases'), '6|1|9|4', 'pops');
is(counters('q', 'acks_completed, acks_failed, acks_retried, dead_letters, acks_dropped'), '3|1|1|1|0', 'acks by outcome, autoAck included');
$queen->sql(<<'SQL');
SELECT queen.log_configure(test.tenant(), 'q', NULL, NULL, '{"deadLetterQueue": false, "dlqAfterMaxRetries": false, "retryLimit": 0}', 'merge');
SELECT * FROM test.pop('q', worker => 7, batch => 1);
SELECT * FROM test.ack('q', 'p', 7, '{g}', '{failed}');
SQL
is(counters('q', 'acks_completed, dead_letters, acks_dropped'), '3|1|1', 'a dropped message');

# V-80: the lag is what a consumer would still receive.
sub lag { return $queen->sql("SELECT lag, lagging_partitions, partitions FROM queen.pg_stat_queen_consumers WHERE queue = 'lag' AND consumer_group = '$_[0]'"); }
sub drained
{
    my ($group) = @_;
    return $queen->sql(<<SQL);
SELECT coalesce(sum(last - first + 1), 0) FROM test.pop('lag', NULL, '$group', worker => 1, batch => 10000, partitions => 100, auto => true) WHERE status = 'segment'
SQL
}
$queen->sql(q{SELECT test.push('lag', 'p' || i % 3, 'a' || i, 'b' || i) FROM generate_series(1, 9) AS i});
$queen->sql(q{SELECT * FROM test.pop('lag', NULL, 'all', worker => 1, batch => 5, partitions => 1)});
is(lag('all'), '18|3|3', 'all of it, leased messages included');
is($queen->sql(q{SELECT active_leases, leased_messages, consumed FROM queen.pg_stat_queen_consumers WHERE queue = 'lag'}), '1|5|0', 'and the lease');
is($queen->sql(q{SELECT oldest_unconsumed = (SELECT min(s.created_at) FROM queen.log_segments AS s JOIN queen.log_partitions AS p ON p.id = s.partition_id
                                             JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'lag')
                        AND oldest_unconsumed_age > interval '0' FROM queen.pg_stat_queen_consumers WHERE queue = 'lag'}), 't', 'and the age of the oldest');
$queen->sql(q{SELECT * FROM test.pop('lag', NULL, 'new', worker => 2, mode => 'new')});
is(lag('new'), '0|0|3', 'a group that starts with what is new lags by nothing');
is($queen->sql(q{SELECT oldest_unconsumed IS NULL FROM queen.pg_stat_queen_consumers WHERE queue = 'lag' AND consumer_group = 'new'}), 't', 'with no oldest message');
$queen->sql(q{SELECT test.push('lag', 'p' || i, 'n' || i) FROM generate_series(0, 4) AS i});
is(lag('new'), '5|5|5', 'then by what came, also in partitions that it has not met');
$queen->sql(q{SELECT test.retain_from('lag', 'p1', 4)});
is(lag('all'), '19|5|5', 'what retention took away is no lag');
$queen->sql(q{SELECT test.expire('lag')});
is(drained('all'), 19, 'exactly that is delivered');
is(drained('new'), 5, 'to the other group as well');
is(lag($_), '0|0|5', "$_ is drained") for qw(all new);
$queen->sql(q{DELETE FROM queen.log_consumers WHERE consumer_group = 'new' AND partition_id = test.partition_id('lag', 'p0');
              SELECT queen.stat_doubt(id) FROM queen.queues WHERE name = 'lag'});
is(lag('new'), '1|1|5', 'a cursor that is still to come starts where the subscription says');
is(drained('new'), 1, 'and does');

# Parked pops, as sessions report them.
$queen->sql(q{SELECT queen.log_provision(ARRAY[test.tenant()], '{parked}', '{p}')});
my $web = $node->background_psql('postgres');
my $report = sub { $web->query_safe("SELECT queen.log_parked(ARRAY[test.tenant(), test.tenant()], '{parked, nowhere}', '{$_[0], 7}')") };
$report->(3);
is(counters('parked', 'parked'), 3, 'parked pops are shown');
$report->(2);
is(counters('parked', 'parked'), 2, 'the last report counts');
$queen->sql(q{SELECT queen.log_parked(ARRAY[test.tenant()], '{parked}', '{5}')});
$web->quit;
wait_until(sub { counters('parked', 'parked') == 0 }, 'a session that ends takes its report along');

# More queues than there is room for.
is($queen->sql(q{SELECT count(*) FROM generate_series(1, 30) AS i, LATERAL test.push('more' || i, 'p', 'x') AS v WHERE v.status = 'queued'}), 30, 'pushes beyond the tracked queues');
is($queen->sql('SELECT count(*) FROM queen.pg_stat_queen_queues WHERE pushes > 0 AND queue_id IS NOT NULL') <= 16, 1, 'not all of them are tracked');
is($queen->sql(q{SELECT sum(pushes) FROM queen.pg_stat_queen_queues WHERE queue_id IS NULL OR queue LIKE 'more%'}), 30, 'but all are counted');
is($queen->sql('SELECT count(*) FROM queen.pg_stat_queen_queues WHERE queue_id IS NULL'), 1, 'the rest in one row');

# A deleted queue leaves its place.
$queen->sql(q{SELECT queen.log_delete_queue(test.tenant(), 'lag')});
is(counters('lag', 'count(*)'), 0, 'a deleted queue is not shown');

# Reset.
my $reset = counters('q', 'stats_reset');
my $worker_reset = statistics($queen, 'wake', 'stats_reset');
$queen->sql('SELECT queen.pg_stat_queen_reset()');
is(counters('q', 'pushes + pops + acks_completed'), 0, 'a reset sets the counters to zero');
isnt(counters('q', 'stats_reset'), $reset, 'and says when');
isnt(statistics($queen, 'wake', 'stats_reset'), $worker_reset, 'also of the workers');
is($queen->sql('SELECT count(*) FROM queen.pg_stat_queen_queues WHERE queue_id IS NULL'), 0, 'and of the rest');
is($queen->sql(q{SELECT status FROM test.push('q', 'p', 'z')}), 'queued', 'pushing goes on');
is(counters('q', 'pushes'), 1, 'and is counted');
$queen->finish;
