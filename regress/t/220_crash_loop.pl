# Front end and server are killed over and over under load: what was acknowledged stays.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my @groups = qw(billing shipping);
my $queen = QueenTest->new('crash', conf => "restart_after_crash = on\n");
my $web = $queen->start_frontend(args => [ '--threads', 2 ]);
my $load = QueenHistory::start_endless($queen, ports => [ $web->port ], queue => 'crash', groups => join(',', @groups));

# The load goes on: more messages are stored than before the fault.
sub stored { return $queen->sql('SELECT coalesce(sum(last_offset + 1), 0) FROM queen.log_partitions'); }

sub wait_for_progress
{
    my ($what) = @_;
    my $before = stored();
    wait_until(sub { stored() > $before + 100 }, "messages are stored after $what");
    return;
}

wait_for_progress('the start');
for my $round (1 .. 10)
{
    $web->kill9;
    $web->start;
    wait_for_progress("kill $round of the front end");
    $queen->node->stop('immediate');
    $queen->node->start;
    wait_for_progress("crash $round of the server");
}
for my $round (1 .. 2)
{
    my $pid = $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'queen_web' ORDER BY query_start DESC LIMIT 1});
    kill 'KILL', $pid;
    wait_until(sub { !kill 0, $pid }, 'the backend is gone');
    wait_until(sub { eval { stored() } }, 'the server is back');
    wait_for_progress("kill $round of a backend");
}
for my $round (1 .. 2)
{
    $queen->kill_postmaster;
    $queen->node->start;
    wait_for_progress("kill $round of the postmaster");
}
pass('the load goes on after each of 24 crashes');

$load->stop;
cmp_ok($load->totals->{unknown}, '>', 0, 'requests were in flight when they came');
cmp_ok($load->totals->{acknowledged}, '>', 0, 'messages were consumed meanwhile');
$load->drain(
    ports => [ $web->port ],
    consumers => 8,
    groups => join(',', @groups),
    pop_partitions => 6,
    pop_timeout => 5000);
$load->check_log('V-91');
$load->check_groups('after crashes');
$load->check_drained('after crashes', @groups);
QueenHistory::check_tables($queen, 'after crashes');
$queen->finish;
