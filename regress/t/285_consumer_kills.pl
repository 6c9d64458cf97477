# Two hundred consumers of one queue in one group, over two front ends. First a backlog, and everybody
# well: every partition has its turn (V-31). Then front ends, backends, the server and consumers are
# killed: no message has two live leases, none is lost, each partition keeps its order.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use List::Util qw(max shuffle);
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my ($partitions, $consumers) = (40, 200);
my $queen = QueenTest->new('kills', conf => "restart_after_crash = on\n");
my @webs = map { $queen->start_frontend(args => [ '--threads', 2 ]) } 1 .. 2;
my %common = (ports => [ map { $_->port } @webs ], groups => 'workers');

# V-31: between two batches of one partition the others have few: 40 is everybody's turn. One that
# waited for the others to run dry would see a thousand.
{
    my $load = QueenHistory::run($queen, %common, queue => 'backlog', producers => $partitions, partitions => $partitions, count => 15, batch => 10);
    is($load->totals->{pushed}, $partitions * 150, 'a backlog of 30 batches in each partition');
    $load->drain(%common, consumers => $consumers, pop_batch => 5);
    my (%last, $n, $longest);
    for my $part (map { @{ $_->{parts} || [] } } sort { $a->{complete} <=> $b->{complete} } $load->entries('pop'))
    {
        $longest = max($longest // 0, ++$n - ($last{ $part->{partition} } // 0));
        $last{ $part->{partition} } = $n;
    }
    is(scalar keys %last, $partitions, 'V-31: every partition is served');
    cmp_ok($longest, '<', 10 * $partitions, 'V-31: over and over');
    $load->check_groups('without faults');
    $load->check_once('without faults');
    $load->check_drained('without faults', 'workers');
}

# The kills. A tenth of the consumers' batches is never acknowledged: those consumers died.
# Undefined while the server is away.
sub consumed { return eval { $queen->sql('SELECT coalesce(sum(committed + 1), 0) FROM queen.log_consumers') }; }

sub wait_for_progress
{
    my ($what) = @_;
    my $before;
    wait_until(sub { $before = consumed(); defined $before }, "the server answers after $what");
    wait_until(sub { (consumed() // 0) > $before + 200 }, "messages are consumed after $what");
    return;
}

sub backends { return split /\n/, $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'queen_web' ORDER BY random()}); }

my $load = QueenHistory::start(
    $queen, %common,
    queue => 'kills',
    seconds => 300,
    producers => 2,
    partitions => $partitions,
    roam => 1,
    batch => 5,
    repeat => 5,
    consumers => $consumers,
    pop_batch => 10,
    pop_partitions => 2,
    lease => 1,
    partial => 10,
    abandon => 10);
wait_for_progress('the start');
my @faults = (
    [ 'a front end is killed', sub { my ($web) = shuffle @webs; $web->kill9; $web->start; } ],
    [ 'backends are terminated', sub { $queen->sql("SELECT pg_terminate_backend($_)") for (backends())[ 0 .. 2 ]; } ],
    [ 'all backends are terminated', sub { $queen->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'queen_web'}); } ],
    [ 'workers are terminated', sub { $queen->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^queen'}); } ],
    [ 'a backend is killed', sub { kill 'KILL', (backends())[0]; } ],
    [ 'the server crashes', sub { $queen->node->stop('immediate'); $queen->node->start; } ]);
for my $fault (shuffle(@faults))
{
    my ($what, $strike) = @$fault;
    $strike->();
    wait_for_progress($what);
}
pass('consumption goes on after each of ' . @faults . ' faults');
$load->stop;
cmp_ok($load->totals->{unknown}, '>', 0, 'requests were in flight when they came');
$load->drain(%common, consumers => $consumers, pop_partitions => 5, pop_timeout => 2000);
$load->check_log('after kills');
$load->check_groups('after kills');
$load->check_drained('after kills', 'workers');
QueenHistory::check_tables($queen, 'after kills');
$queen->finish;
