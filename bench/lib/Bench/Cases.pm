# The cases: what is compared, round after round, and what the comparison should show.
#
# A case is a hash:
#   name, title, target      what the report says
#   prepare                  done once, before the rounds (optional)
#   sides                    pairs of a name and a function that measures; run in turn in each round.
#                            The function gets the number of the round and what the sides before it
#                            measured in this round, by name.
#   judge                    what is drawn from each round: a name, a function of the round's
#                            measurements, its unit, and "at_least" or "at_most", the target
package Bench::Cases;

use strict;
use warnings;
use Bench::Load;
use Bench::Machine qw(free_port listener);
use Bench::Report;
use Bench::Server;
use Cwd 'abs_path';
use FindBin;
use Time::HiRes qw(sleep time);

my $build = abs_path("$FindBin::RealBin/../build");

# Options: server, other (a server or undef), seconds of a measurement, large (partitions of the
# largest queue), parked (polls), payloads (a file or undef).
sub new
{
    my ($class, %options) = @_;
    return bless { %options, prefix => "bench-$^T-" }, $class;
}

sub names { return qw(push-single push-wide push-batch drain ack latency dedup million idle); }

sub get
{
    my ($self, $name) = @_;
    my $method = 'case_' . ($name =~ tr/-/_/r);
    return { name => $name, %{ $self->$method } };
}

# --- building blocks -----------------------------------------------------------------------

sub queue
{
    my ($self, @parts) = @_;
    return $self->{prefix} . join '-', @parts;
}

# Pushes from 64 connections one message each, unless options say otherwise.
sub push_load
{
    my ($self, $server, $queue, %options) = @_;
    return Bench::Load::measure($server, 'pushed', sub {
        return Bench::Load::generate($server->port,
            queue => $queue, push => 64, seconds => $self->{seconds},
            payloads => $self->{payloads}, %options);
    });
}

# Pops everything: eight connections, a hundred messages a pop.
sub pop_load
{
    my ($self, $server, $queue, $messages, %options) = @_;
    return Bench::Load::measure($server, 'acknowledged', sub {
        return Bench::Load::generate($server->port,
            queue => $queue, messages => $messages, pop => 8, 'pop-batch' => 100, %options);
    });
}

my %batches = (push => 16, batch => 100);
my %auto_ack = ('auto-ack' => '');

# A side for the server, and the same for the other one where there is one.
sub both
{
    my ($self, $name, $measure) = @_;
    my @sides = ([ $name => sub { return $measure->($self->{server}, @_); } ]);
    push @sides, [ "other $name" => sub { return $measure->($self->{other}, @_); } ] if $self->{other};
    return @sides;
}

sub warm_up { return $_[0]{seconds} < 1 ? $_[0]{seconds} : 1; }

# Connections, prepared statements and caches are warm before anything is measured.
sub warm
{
    my ($self, $queue, %options) = @_;
    for my $server ($self->{server}, $self->{other} || ())
    {
        $self->push_load($server, $queue, seconds => $self->warm_up, %options);
    }
    return;
}

# Rounds of one case need the numbers of its messages to go on where the last round stopped.
sub next_number
{
    my ($self, $queue, $count) = @_;
    my $first = $self->{numbers}{$queue} // 0;
    $self->{numbers}{$queue} = $first + $count;
    return $first;
}

sub ratio
{
    my ($name, $over, $under, $member, @target) = @_;
    return {
        name => $name,
        value => sub { return $_[0]{$over}{$member} / $_[0]{$under}{$member}; },
        unit => '%',
        @target
    };
}

sub other_ratios
{
    my ($self, @sides) = @_;
    return $self->{other} ? map { ratio("$_ / other", $_, "other $_", 'rate') } @sides : ();
}

# --- pushes ----------------------------------------------------------------------------------

sub http_floor
{
    my ($self) = @_;
    return $self->{floor} if $self->{floor};
    my $port = free_port();
    $self->{floor_program} = Bench::Load::start_program("$build/http-floor", $port);
    for (1 .. 500) { last if listener($port); sleep 0.01; }
    return $self->{floor} = Bench::Server->new(url => "http://127.0.0.1:$port", database => 0);
}

sub case_push_single
{
    my ($self) = @_;
    return {
        title => 'single-message push, 64 connections, 64 partitions',
        target => 'at least 50 % of the HTTP floor',
        prepare => sub { $self->warm($self->queue('single-warm')); },
        sides => [
            [ 'HTTP floor' => sub { return $self->push_load($self->http_floor, 'floor'); } ],
            $self->both(queen => sub { my ($server, $round) = @_;
                return $self->push_load($server, $self->queue('single', $round)); }),
        ],
        judge => [
            ratio('queen / HTTP floor', 'queen', 'HTTP floor', 'rate', at_least => 0.5),
            $self->other_ratios('queen') ],
    };
}

sub case_push_wide
{
    my ($self) = @_;
    my ($narrow, $wide) = map { $self->queue($_) } qw(narrow wide);
    my $load = sub {
        my ($queue, $partitions) = @_;
        return $self->both("$partitions partitions" => sub { my ($server) = @_;
            return $self->push_load($server, $queue, partitions => $partitions,
                first => $self->next_number($queue, 10_000_000)); });
    };
    return {
        title => 'single-message push, 64 connections, 10,000 partitions, uniform',
        target => 'at least 60 % of the rate with 64 partitions',
        prepare => sub {
            $self->{server}->provision($wide, 10_000);
            $self->warm($narrow, first => $self->next_number($narrow, 10_000_000));
        },
        sides => [ $load->($narrow, 64), $load->($wide, 10_000) ],
        judge => [
            ratio('10,000 / 64 partitions', '10000 partitions', '64 partitions', 'rate', at_least => 0.6),
            $self->other_ratios('64 partitions', '10000 partitions') ],
    };
}

# The same segments as the queue has just stored, by nothing but inserts.
sub database_floor
{
    my ($self, $storage) = @_;
    my $server = $self->{server};
    my ($segments, $bytes, $messages) = map { int($_ + 0.5) || 1 }
      @$storage{qw(segments_per_commit bytes_per_segment messages_per_segment)};
    $server->sql('SET client_min_messages = warning', 'DROP TABLE IF EXISTS floor_segments, floor_txns',
        'CREATE TABLE floor_segments (LIKE queen.log_segments INCLUDING ALL)',
        'CREATE TABLE floor_txns (LIKE queen.log_txns INCLUDING ALL)');
    my $best;
    for my $connections (1, 2, 4)
    {
        my $measured = Bench::Load::measure($server, 'pushed', sub {
            return Bench::Load::program('db-floor', $connections, $self->{seconds}, $segments, $bytes,
                $messages);
        });
        $measured->{connections} = $connections;
        $best = $measured if !$best || $measured->{rate} > $best->{rate};
    }
    return $best;
}

sub case_push_batch
{
    my ($self) = @_;
    return {
        title => 'push in batches of 100, 16 connections, 64 partitions',
        target => 'at least 70 % of the database floor',
        prepare => sub { $self->warm($self->queue('batch-warm'), %batches); },
        sides => [
            $self->both(queen => sub { my ($server, $round) = @_;
                my $queue = $self->queue('batch', $round);
                my $measured = $self->push_load($server, $queue, %batches);
                return $measured unless $server->has_database;
                return { %$measured, %{ $server->storage($queue) } }; }),
            [ 'database floor' => sub { return $self->database_floor($_[1]{queen}); } ],
        ],
        judge => [
            ratio('queen / database floor', 'queen', 'database floor', 'rate', at_least => 0.7),
            $self->other_ratios('queen') ],
    };
}

sub case_dedup
{
    my ($self) = @_;
    my %window = (on => 3600, off => 0);
    my $hashes = $self->{large};
    my $load = sub {
        my ($name) = @_;
        my $queue = $self->queue('dedup', $name);
        return [ "dedup $name" => sub {
            return $self->push_load($self->{server}, $queue, %batches, partitions => 1,
                first => $self->next_number($queue, 10_000_000)); } ];
    };
    return {
        title => "push in batches of 100, 16 connections, one partition that holds $hashes hashes",
        target => 'with deduplication (3600 s) at least 80 % of without',
        prepare => sub {
            for my $name (sort keys %window)
            {
                my $queue = $self->queue('dedup', $name);
                $self->{server}->sql(qq{SELECT queen.log_configure(
                    '00000000-0000-0000-0000-000000000001', '$queue', NULL, NULL,
                    '{"dedupWindowSeconds":$window{$name}}', 'merge')});
                $self->push_load($self->{server}, $queue, push => 4, batch => 1000, payload => 1,
                    partitions => 1, messages => $hashes, seconds => 600, payloads => undef,
                    first => $self->next_number($queue, $hashes));
                $self->push_load($self->{server}, $queue, %batches, partitions => 1, seconds => $self->warm_up,
                    first => $self->next_number($queue, 10_000_000));
            }
        },
        sides => [ $load->('off'), $load->('on') ],
        judge => [ ratio('on / off', 'dedup on', 'dedup off', 'rate', at_least => 0.8) ],
    };
}

# --- pops -------------------------------------------------------------------------------------

sub case_drain
{
    my ($self) = @_;
    return {
        title => 'pop + autoAck drain, batch 100, 8 consumers',
        target => 'at least 1.5 x the rate of batch pushes',
        prepare => sub { $self->warm($self->queue('drain-warm'), %batches); },
        sides => [
            $self->both(push => sub { my ($server, $round) = @_;
                return $self->push_load($server, $self->queue('drain', $round), %batches); }),
            $self->both(drain => sub { my ($server, $round, $measured) = @_;
                my $pushed = $measured->{ $server == $self->{server} ? 'push' : 'other push' };
                return $self->pop_load($server, $self->queue('drain', $round), $pushed->{messages},
                    %auto_ack); }),
        ],
        judge => [ ratio('drain / push', 'drain', 'push', 'rate', at_least => 1.5),
            $self->other_ratios('drain') ],
    };
}

sub case_ack
{
    my ($self) = @_;
    my $fill = sub { my ($server, $round) = @_;
        return $self->push_load($server, $self->queue('ack', $round), %batches); };
    my $of = sub { my ($server, $side, $measured) = @_;
        return $measured->{ $server == $self->{server} ? $side : "other $side" }; };
    return {
        title => 'pop + explicit ack, batch 100, 8 consumers, 2 groups',
        target => 'at least 70 % of the drain rate, each group',
        prepare => sub { $self->warm($self->queue('ack-warm'), %batches); },
        sides => [
            $self->both(fill => $fill),
            $self->both(drain => sub { my ($server, $round, $measured) = @_;
                return $self->pop_load($server, $self->queue('ack', $round),
                    $of->($server, 'fill', $measured)->{messages}, group => 'drain', %auto_ack); }),
            $self->both(ack => sub { my ($server, $round, $measured) = @_;
                return $self->pop_load($server, $self->queue('ack', $round),
                    $of->($server, 'fill', $measured)->{messages}, groups => 2); }),
        ],
        judge => [
            {
                name => "each group's rate / drain",
                value => sub { return $_[0]{ack}{rate} / 2 / $_[0]{drain}{rate}; },
                unit => '%',
                at_least => 0.7
            },
            $self->other_ratios('ack') ],
    };
}

sub case_latency
{
    my ($self) = @_;
    my $rate = 500;
    my $times = sub {
        my ($name, $commit, $of, %target) = @_;
        return {
            name => "$name / " . ($of eq 'p50' ? $commit : "$of of $commit"),
            value => sub { return $_[0]{queen}{delivery_us}{$name} / $_[0]{$commit}{$of}; },
            unit => 'x',
            %target
        };
    };
    my $commits = sub { my ($name, @rate) = @_;
        return [ $name => sub {
            return Bench::Load::program('commit-time', $self->{server}->directory . "/commit-time.$$", 1000,
                @rate); } ]; };
    my $paced = "commit time at $rate/s";
    my $queue = $self->queue('latency');
    my $deliver = sub { my ($server, $messages) = @_;
        return Bench::Load::generate($server->port, queue => $queue, push => 64, rate => $rate,
            first => $self->next_number($queue, $messages), messages => $messages, pop => 64,
            pinned => '', payloads => $self->{payloads}, %auto_ack); };
    return {
        title => "push to parked consumer, $rate messages/s open loop, 64 consumers",
        target => "p50 under 3 x, p99 under 6 x the machine's commit time (median fdatasync)",
        # Partitions and cursors are there: a consumer that waits has been there before.
        prepare => sub { $deliver->($_, $rate) for $self->{server}, $self->{other} || (); },
        sides => [
            $commits->('commit time'), $commits->($paced, $rate),
            $self->both(queen => sub { my ($server) = @_;
                return Bench::Load::measure($server, 'acknowledged', sub {
                    return $deliver->($server, int($rate * 2 * $self->{seconds})); }); }),
        ],
        judge => [
            $times->('p50', 'commit time', 'p50', at_most => 3), $times->('p99', 'commit time', 'p50', at_most => 6),
            $times->('p50', $paced, 'p50'), $times->('p99', $paced, 'p99') ],
    };
}

sub case_million
{
    my ($self) = @_;
    my $large = $self->{large};
    my $active = int($large / 100);
    my %stride = ($self->queue('active') => 1, $self->queue('large') => 100);
    my $sides = sub {
        my ($queue, $label) = @_;
        return (
            [ "push, $label" => sub {
                return $self->push_load($self->{server}, $queue, partitions => $active,
                    stride => $stride{$queue}, first => $self->next_number($queue, 10_000_000)); } ],
            [ "pop, $label" => sub {
                return $self->pop_load($self->{server}, $queue, $self->{numbers}{$queue},
                    seconds => 3 + $self->{seconds}, %auto_ack); } ]);
    };
    my $change = sub {
        my ($name, $side, $member) = @_;
        return {
            name => $name,
            value => sub { return $member->($_[0]{"$side, large"}) / $member->($_[0]{"$side, active"}); },
            unit => '%'
        };
    };
    return {
        title => "$large partitions, $active of them active",
        target => "push rate and pop p99 within 20 % of a queue with $active partitions; front end under 256 MiB",
        prepare => sub {
            $self->{server}->provision($self->queue('active'), $active);
            my $start = time;
            $self->{server}->provision($self->queue('large'), $large);
            printf "%d partitions created in %.1f s\n", $large, time - $start;
            for my $side (map { $sides->($self->queue($_), 'first') } qw(active large))
            {
                my ($name, $measure) = @$side;
                printf "%s: %s\n", $name, Bench::Report::describe($measure->());
            }
        },
        sides => [ $sides->($self->queue('active'), 'active'), $sides->($self->queue('large'), 'large') ],
        judge => [
            { %{ $change->('push rate', 'push', sub { return $_[0]{rate}; }) }, at_least => 0.8 },
            { %{ $change->('pop p99', 'pop', sub { return $_[0]{pop_us}{p99}; }) }, at_most => 1.2 },
            memory_limit('pop, large') ],
    };
}

# --- memory, and doing nothing ----------------------------------------------------------------

sub memory_limit
{
    my ($side) = @_;
    return {
        name => 'front end',
        value => sub { return $_[0]{$side}{memory} / 1024 / 1024; },
        unit => 'MiB',
        at_most => 256
    };
}

# What the front end uses while polls wait: processor time over a while, and memory.
sub park
{
    my ($self, $server, $queue) = @_;
    my $hold = 2 * $self->{seconds};
    my $program = Bench::Load::start_program("$build/queen-bench", '--port', $server->port, '--queue', $queue,
        '--park', $self->{parked}, '--seconds', 600);
    my $line = readline $program->{pipe};
    die "the polls were not parked\n" unless ($line // '') =~ /^parked/;
    sleep 1;
    my ($before, $start) = ($server->usage, time);
    sleep $hold;
    my ($after, $memory) = ($server->usage, $server->memory);
    my $share = ($after->{frontend} - $before->{frontend}) / (time - $start);
    kill 'TERM', $program->{pid};
    my $report = readline $program->{pipe};
    close $program->{pipe} or die "a poll was answered early\n";
    return { parked => $self->{parked}, share => $share, memory => $memory };
}

sub case_idle
{
    my ($self) = @_;
    return {
        title => "idle front end with $self->{parked} parked polls, each the second request on its connection",
        target => 'under 1 % of one core, under 256 MiB',
        sides => [ $self->both(queen => sub { my ($server, $round) = @_;
            return $self->park($server, $self->queue('idle', $round)); }) ],
        judge => [
            {
                name => 'processor time',
                value => sub { return $_[0]{queen}{share}; },
                unit => '%',
                at_most => 0.01
            },
            memory_limit('queen') ],
    };
}

sub stop
{
    my ($self) = @_;
    Bench::Load::stop_program($self->{floor_program}) if $self->{floor_program};
    delete $self->{floor_program};
    return;
}

1;
