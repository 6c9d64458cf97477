# Two thousand parked pops cost the front end little memory, and it gives that back.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $polls = 2000;
my $queen = QueenTest->new('memory');
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);
my $directory = '/proc/' . $web->pid;
my $asan = slurp_file("$directory/maps") =~ /libasan/;

# Resident memory, KiB.
sub resident { return (slurp_file("$directory/status") =~ /^VmRSS:\s+(\d+)/m)[0]; }

sub descriptors
{
    opendir my $handle, "$directory/fd" or die $!;
    return scalar grep { /^\d/ } readdir $handle;
}

sub counter { return $web->get('/metrics')->{json}{queen}{ $_[0] }; }

# A pop that times out is repeated on its connection, so that its memory is in use.
sub park
{
    my $before = counter('popRequests');
    my $load = QueenHistory::start(
        $queen,
        ports => [ $web->port ],
        queue => 'memory',
        consumers => $polls,
        pop_timeout => 4000,
        seconds => 120);
    wait_until(sub { counter('popRequests') >= $before + 2 * $polls && counter('parkedPops') == $polls },
        "$polls pops are parked a second time");
    return $load;
}

sub leave
{
    my ($load, $descriptors) = @_;
    $load->kill;
    wait_until(sub { counter('parkedPops') == 0 && descriptors() <= $descriptors }, 'the pops have left');
    return;
}

sub settled
{
    my $last;
    wait_until(
        sub {
            my $before = resident();
            sleep 1;
            return $before == ($last = resident());
        },
        'the memory has settled');
    return $last;
}

# The first round allocates what is kept for good.
my $descriptors = descriptors();
leave(park(), $descriptors);
my $resident = settled();
note "$resident KiB after a first round";
for my $round (1 .. 2)
{
    my $load = park();
    my $parked = resident();
    note "$parked KiB with $polls parked pops";
    cmp_ok($parked, '<', 64 * 1024, "round $round: below 64 MiB with $polls parked pops") unless $asan;
    leave($load, $descriptors);
    pass("round $round: the descriptors are closed");
    my $left = settled();
    note "$left KiB after they left";
    cmp_ok($left, '<=', 1.1 * $resident, "round $round: the memory is given back") unless $asan;
}
$queen->finish;
