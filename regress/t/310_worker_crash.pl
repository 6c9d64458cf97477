# Crashes: a worker that is killed takes the server down with it, as any backend does. Then there
# is one new set of workers, and the counters start anew; after a clean restart they go on.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('worker_crash', conf => "restart_after_crash = on\n");
my $node = $queen->node;

sub pushes { return $queen->sql(q{SELECT pushes FROM queen.pg_stat_queen_queues WHERE queue = 'q'}); }
sub reset_time { return $queen->sql(q{SELECT stats_reset FROM queen.pg_stat_queen_queues WHERE queue = 'q'}); }
sub push_one { return $queen->sql("SELECT status FROM test.push('q', 'p', '$_[0]')"); }

my $workers = wait_for_workers($queen);
push_one('first');
is(pushes(), 1, 'a push is counted');

# A clean restart keeps the counters, of queues and of workers.
my $reset = reset_time();
my $cycles = statistics($queen, 'retention', 'cycles');
my $worker_reset = statistics($queen, 'retention', 'stats_reset');
$node->restart;
is(pushes(), 1, 'a clean restart keeps the counters');
is(reset_time(), $reset, 'and the time of their reset');
$workers = wait_for_workers($queen);
cmp_ok(statistics($queen, 'retention', 'cycles'), '>=', $cycles, 'and those of the workers');
is(statistics($queen, 'retention', 'stats_reset'), $worker_reset, 'and the time of their reset');

# A crash does not, however it comes.
sub is_counted_anew
{
    my ($what) = @_;
    is(pushes(), 0, "$what sets the counters to zero");
    push_one($what);
    is(pushes(), 1, 'and they count again');
    isnt(reset_time(), $reset, 'with another time of reset');
    $reset = reset_time();
    return;
}

for my $worker (@QueenWorkers::WORKERS, 'launcher')
{
    my $old = wait_for_workers($queen);
    my $pid = $old->{$worker} // $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queen launcher'});
    kill 'KILL', $pid;
    wait_for_workers($queen, 'postgres', $old);
    is($queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'queen %'}),
        1 + @QueenWorkers::WORKERS, "V-78: one set of workers after kill -9 of $worker");
    is_counted_anew("kill -9 of $worker");
}

$node->stop('immediate');
$node->start;
wait_for_workers($queen);
is_counted_anew('an immediate shutdown');
isnt(statistics($queen, 'retention', 'stats_reset'), $worker_reset, 'also for the workers');

# Without a postmaster every process leaves by itself, and another set comes with the next one.
wait_for_workers($queen);
$queen->kill_postmaster;
pass('launcher and workers leave when the postmaster is gone');
$node->start;
wait_for_workers($queen);
is_counted_anew('kill -9 of the postmaster');

# The file is not believed when it is older than the crash, nor when it is damaged.
push_one('kept');
$node->stop('fast');
my $file = $node->data_dir . '/pg_stat/queen.stat';
ok(-s $file, 'a clean shutdown writes the counters');
my $counters = PostgreSQL::Test::Utils::slurp_file($file);
$node->start;
ok(!-e $file, 'they are read once');
is(pushes(), 2, 'and taken over');
$node->stop('immediate');
write_counters($counters);
$node->start;
is(pushes(), 0, 'counters from before a crash are not');
$node->stop('fast');
write_counters(substr $counters, 0, 30);
$node->start;
is(pushes(), 0, 'nor what cannot be read');
wait_for_log($queen, qr/could not read statistics from file "pg_stat\/queen\.stat"/);
is(push_one('kept'), 'duplicate', 'no message is lost');

sub write_counters
{
    my ($bytes) = @_;
    open my $out, '>:raw', $file or die "$file: $!";
    print $out $bytes;
    close $out or die "$file: $!";
    return;
}

$node->stop('fast');
is(count_in_log($queen, qr/PANIC:|TRAP:|terminated by signal 11/), 0, 'nothing crashed by itself');
done_testing();
