# The server crashes and the front end is killed, over and over, while the spool fills and while it is
# stored: what was answered queued or buffered is there, once and in order, and is consumed in order.
# Property V-90.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('spool_crash', conf => "restart_after_crash = on\n");
my $node = $queen->node;
my $web = $queen->start_frontend(
    env => { FILE_BUFFER_DIR => PostgreSQL::Test::Utils::tempdir . '/spool' },
    args => [ qw(--threads 2 --spool-file-messages 100) ]);
my $load = QueenHistory::start_endless($queen, ports => [ $web->port ], queue => 'crash', lease => 1);

sub pending
{
    my $response = eval { $web->get('/api/v1/status/buffers') } or return 0;
    return $response->{json}{pending};
}

sub stored { return eval { $queen->sql('SELECT coalesce(sum(last_offset + 1), 0) FROM queen.log_partitions') } // 0; }

sub wait_for_spool
{
    my ($what) = @_;
    my $before = pending();
    wait_until(sub { pending() > $before + 50 }, "the spool fills $what");
    return;
}

sub wait_for_progress
{
    my ($what) = @_;
    my $before = stored();
    wait_until(sub { stored() > $before + 100 }, "messages are stored $what");
    return;
}

sub kill_frontend { $web->kill9; $web->start; return; }

wait_for_progress('at the start');
for my $round (1 .. 3)
{
    $node->stop('immediate');
    wait_for_spool('while the server is down');
    kill_frontend();
    wait_for_spool('after the front end was killed');
    $node->start;
    wait_for_progress('from the spool');
    # In the middle of storing it: the front end, the server, a backend.
    if ($round == 1) { kill_frontend(); }
    elsif ($round == 2) { $node->stop('immediate'); $node->start; }
    else { kill 'KILL', $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'queen_web' ORDER BY query LIKE '%log_push%' DESC, query_start DESC LIMIT 1}); }
    wait_until(sub { eval { $web->get('/health')->{status} == 200 } && pending() == 0 }, 'the spool is stored');
    wait_for_progress('directly again');
}
pass('the load goes on after each crash');
$load->stop;
my %statuses;
$statuses{$_}++ for map { @{ $_->{statuses} || [] } } $load->entries('push');
note join ', ', map { "$_: $statuses{$_}" } sort keys %statuses;
cmp_ok($statuses{$_} // 0, '>', 100, "$_ messages") for qw(queued buffered);
wait_until(sub { pending() == 0 }, 'the spool is empty');
$load->drain(ports => [ $web->port ], consumers => 8, pop_partitions => 6, pop_timeout => 2000);
$load->check_log('V-90');
$load->check_groups('V-90');
$load->check_drained('V-90', 'workers');
QueenHistory::check_tables($queen, 'after crashes');
$queen->finish;
