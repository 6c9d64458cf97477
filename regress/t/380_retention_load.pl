# Retention under a push load: no push fails, what is deleted is a prefix, and the books are right.
# The latency of the pushes is reported, not judged.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenHistory;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('retention_load', conf => <<'CONF');
queen.retention_interval = 100ms
queen.maintenance_batch = 50
CONF
my $web = $queen->start_frontend;
$queen->sql(q{SELECT queen.log_configure(test.tenant(), 'busy', NULL, NULL,
              '{"retentionEnabled": true, "retentionSeconds": 2, "completedRetentionSeconds": 1}', 'merge')});
wait_for_workers($queen);

my $load = QueenHistory::start(
    $queen,
    queue => 'busy',
    ports => [ $web->port ],
    producers => 8,
    partitions => 4,
    seconds => 180);
wait_until(sub { $queen->sql('SELECT coalesce(sum(messages_deleted), 0) FROM queen.retention_history') > 2000 }, 'retention has deleted a lot');
my $progress = wait_until(
    sub { $queen->sql(q{SELECT phase || ' ' || (pid IS NOT NULL) FROM queen.pg_stat_queen_progress_retention WHERE steps_done > 0 LIMIT 1}) },
    'retention shows its progress');
like($progress, qr/^\S.* true$/, 'the progress view names step and process');
my $history = $load->stop;

my @failed = grep { $_->{outcome} ne 'ok' } $history->entries('push');
is(scalar @failed, 0, 'V-74: no push fails beside retention') or diag explain $failed[0];
my @latencies = sort { $a <=> $b } map { $_->{complete} - $_->{invoke} } $history->entries('push');
diag sprintf '%d pushes beside retention: median %.1f ms, p99 %.1f ms', scalar @latencies,
  $latencies[ $#latencies / 2 ] / 1000, $latencies[ $#latencies * 0.99 ] / 1000;

# V-71 and V-72: a prefix of whole segments is gone, and the history adds up.
my $sound = <<'SQL';
SELECT count(*) FROM queen.log_partitions AS p
 WHERE p.log_start <> coalesce((SELECT min(s.base_offset) FROM queen.log_segments AS s WHERE s.partition_id = p.id), p.last_offset + 1)
    OR p.log_start <> (SELECT coalesce(sum(h.messages_deleted), 0) FROM queen.retention_history AS h WHERE h.partition_id = p.id)
    OR p.segments <> (SELECT count(*) FROM queen.log_segments AS s WHERE s.partition_id = p.id)
    OR p.bytes <> (SELECT coalesce(sum(length(s.blob)), 0) FROM queen.log_segments AS s WHERE s.partition_id = p.id)
SQL
is($queen->sql($sound), 0, 'what is gone is a prefix, and the history adds up');
wait_until(sub { $queen->sql('SELECT count(*) FROM queen.log_segments') == 0 }, 'in the end everything has expired');
is($queen->sql($sound), 0, 'still so when the log is empty');
is($queen->sql(q{SELECT retention_messages = push_messages FROM queen.pg_stat_queen_queues WHERE queue = 'busy'}), 't', 'the counters agree');
is($queen->sql(q{SELECT messages = (SELECT sum(messages_deleted) FROM queen.retention_history) FROM queen.pg_stat_queen_workers WHERE worker = 'retention'}),
    't', 'and the worker\'s own');
is(statistics($queen, 'retention', 'errors'), 0, 'retention met no error');
$queen->finish;
