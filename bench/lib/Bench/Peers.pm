# Other queues, what it takes to run them, and the cases that compare with them.
#
# Those inside PostgreSQL use a database of their own in the server that is measured, so they have
# its settings; the others get a server of their own, on a free port and below build/bench.
package Bench::Peers;

use strict;
use warnings;
use Bench::Load;
use Bench::Machine qw(cpu_of free_port listener memory_of);
use Cwd 'abs_path';
use FindBin;
use Time::HiRes 'sleep';

my $bench = $FindBin::RealBin;
my $build = abs_path("$bench/../build");
my $npm = "$build/bench/npm/node_modules";

# name: how it is driven (for the report), why it cannot be ("missing", undef when it can), the
# driver's command, the operations it has, and what starts it
my %peers = (
    'PgQ' => {
        note => 'events inserted by SQL, a batch in one transaction and one pipeline; one consumer, batches of the ticker',
        needs => [ "$build/peer-pgq", '/usr/share/postgresql/15/extension/pgq.control' ],
        driver => ["$build/peer-pgq"],
        consumers => 1,
        set_up => sub { $_[0]->sql('CREATE EXTENSION IF NOT EXISTS pgq'); },
    },
    'pg-boss' => {
        note => 'send, insert of a batch, fetch and complete of a batch',
        needs => ["$npm/pg-boss"],
        driver => [ 'node', "$bench/peers/node.js", 'pg-boss' ],
    },
    'graphile-worker' => {
        note => 'addJob, addJobs, a worker with a local queue and batched completion',
        needs => ["$npm/graphile-worker"],
        driver => [ 'node', "$bench/peers/node.js", 'graphile-worker' ],
    },
    'RabbitMQ' => {
        note => 'durable classic queue, persistent messages, publisher confirms (after fsync), prefetch of two batches, one acknowledgement a batch',
        needs => [ "$build/peer-rabbitmq", '/usr/lib/rabbitmq/bin/rabbitmq-server' ],
        driver => ["$build/peer-rabbitmq"],
        drains => 1,
        start => \&start_rabbitmq,
    },
    'NATS JetStream' => {
        note => 'stream in files; this version acknowledges a message before it is flushed to disk, so it promises less',
        needs => [ "$build/peer-nats", '/usr/sbin/nats-server' ],
        driver => ["$build/peer-nats"],
        drains => 1,
        start => \&start_nats,
    },
);
my @order = ('PgQ', 'pg-boss', 'graphile-worker', 'RabbitMQ', 'NATS JetStream');

sub names { return qw(peers-single peers-batch peers-drain peers-consume); }

# The cases belong to "cases", whose server and settings they share.
sub new
{
    my ($class, $cases) = @_;
    return bless { cases => $cases, running => {} }, $class;
}

# --- running them -------------------------------------------------------------------------------

sub wait_for_port
{
    my ($port) = @_;
    for (1 .. 600)
    {
        my $pid = listener($port);
        return $pid if $pid;
        sleep 0.1;
    }
    die "nobody came to listen on port $port\n";
}

sub directory
{
    my ($name) = @_;
    my $path = "$build/bench/$name";
    system('rm', '-rf', $path);
    system('mkdir', '-p', $path) == 0 or die "cannot make $path\n";
    return $path;
}

sub start_rabbitmq
{
    my ($directory, $port) = (directory('rabbitmq'), free_port());
    local %ENV = (
        %ENV,
        HOME => $directory,
        RABBITMQ_NODENAME => "bench-$$\@localhost",
        RABBITMQ_NODE_IP_ADDRESS => '127.0.0.1',
        RABBITMQ_NODE_PORT => $port,
        RABBITMQ_DIST_PORT => free_port(),
        RABBITMQ_MNESIA_BASE => "$directory/data",
        RABBITMQ_LOG_BASE => "$directory/log",
        RABBITMQ_CONFIG_FILE => "$directory/none",
        RABBITMQ_ENABLED_PLUGINS_FILE => "$directory/plugins",
        RABBITMQ_PID_FILE => "$directory/pid",
        ERL_EPMD_ADDRESS => '127.0.0.1',
        ERL_EPMD_PORT => free_port(),
    );
    my ($server) = glob '/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server';
    my $program = Bench::Load::start_program('sh', '-c', "exec '$server' >'$directory/output' 2>&1");
    my $pid = wait_for_port($port);
    my $epmd = listener($ENV{ERL_EPMD_PORT});
    sleep 3;    # it listens before all of it has started
    return { port => $port, pid => $pid, stop => sub {
        kill 'TERM', $pid;
        Bench::Load::stop_program($program);
        kill 'TERM', $epmd if $epmd; } };
}

sub start_nats
{
    my ($directory, $port) = (directory('nats'), free_port());
    my $program = Bench::Load::start_program('sh', '-c',
        "exec nats-server -a 127.0.0.1 -p $port -js -sd '$directory' >'$directory/output' 2>&1");
    return { port => $port, pid => wait_for_port($port), stop => sub { Bench::Load::stop_program($program); } };
}

sub missing
{
    my ($peer) = @_;
    my ($lacks) = grep { !-e } @{ $peer->{needs} };
    return $lacks;
}

# The peers that are installed; says once which are not.
sub available
{
    my ($self) = @_;
    return @{ $self->{available} } if $self->{available};
    for my $name (@order)
    {
        my $lacks = missing($peers{$name}) // next;
        print "skipped: $name, there is no $lacks (bench/peers/install)\n";
    }
    return @{ $self->{available} = [ grep { !missing($peers{$_}) } @order ] };
}

sub server { return $_[0]{cases}{server}; }

sub start
{
    my ($self, $name) = @_;
    return $self->{running}{$name} if $self->{running}{$name};
    my $peer = $peers{$name};
    return $self->{running}{$name} = $peer->{start}->() if $peer->{start};
    $self->in_database(sub { $peer->{set_up}->($self->server); }) if $peer->{set_up};
    return $self->{running}{$name} = {};
}

sub stop
{
    my ($self) = @_;
    for my $running (values %{ $self->{running} }) { $running->{stop}->() if $running->{stop}; }
    $self->{running} = {};
    return;
}

sub in_database
{
    my ($self, $do) = @_;
    $self->server->sql('CREATE DATABASE bench_peers') unless $self->server->sql(
        q{SELECT count(*) FROM pg_database WHERE datname = 'bench_peers'});
    local $ENV{PGDATABASE} = 'bench_peers';
    return $do->();
}

# --- measuring ----------------------------------------------------------------------------------

# Processor time of the server, in one number, comparable between all.
sub with_server_time
{
    my ($measured) = @_;
    my $sum = ($measured->{frontend_per_message} // 0) + ($measured->{postgres_per_message} // 0);
    return { server_per_message => $sum, %$measured };
}

sub drive
{
    my ($self, $name, $operation, $queue, $connections, $batch, $messages) = @_;
    my $running = $self->start($name);
    my $cases = $self->{cases};
    local $ENV{BENCH_PEER_PORT} = $running->{port} // '';
    local @ENV{qw(NODE_PATH NODE_NO_WARNINGS)} = ($npm, 1);
    local $ENV{BENCH_PAYLOADS} = $cases->{payloads} if $cases->{payloads};
    my @command = (@{ $peers{$name}{driver} }, $operation, $queue, $connections, $batch, $cases->{seconds}, $messages);
    my $count = $operation eq 'push' ? 'pushed' : 'acknowledged';
    return $self->in_database(sub {
        return Bench::Load::measure($self->server, $count, sub { return Bench::Load::run_program(@command); });
    }) unless $running->{pid};
    my $before = cpu_of($running->{pid});
    my $report = Bench::Load::run_program(@command);
    my $used = cpu_of($running->{pid}) - $before;
    return {
        %$report,
        rate => $report->{$count} / $report->{seconds},
        server_per_message => $used / $report->{$count},
        memory => memory_of($running->{pid}),
    };
}

sub queue
{
    my ($self, $name, @parts) = @_;
    return join '_', 'bench', $$, lc($name) =~ s/\W//gr, @parts;
}

sub push_side
{
    my ($self, $name, $connections, $batch) = @_;
    return [ $name => sub { my ($round) = @_;
        return with_server_time($self->drive($name, 'push', $self->queue($name, $batch, $round),
            $connections, $batch, 0)); } ];
}

# Fills a queue, which does not count, and empties it.
sub pop_side
{
    my ($self, $name, $operation) = @_;
    return [ $name => sub { my ($round) = @_;
        my $queue = $self->queue($name, $operation, $round);
        my $pushed = $self->drive($name, 'push', $queue, 16, 100, 0)->{pushed};
        return with_server_time($self->drive($name, $operation, $queue, $peers{$name}{consumers} // 8, 100,
            $pushed)); } ];
}

# Ahead in messages a second, and in processor time a message.
sub ahead
{
    my ($name) = @_;
    return (
        {
            name => "rate: queen / $name",
            value => sub { return $_[0]{queen}{rate} / $_[0]{$name}{rate}; },
            unit => 'x',
            at_least => 1
        },
        {
            name => "processor time: $name / queen",
            value => sub { return $_[0]{$name}{server_per_message} / $_[0]{queen}{server_per_message}; },
            unit => 'x',
            at_least => 1
        });
}

sub compare
{
    my ($self, $title, $queen, $side, @names) = @_;
    return {
        title => $title,
        target => 'ahead in messages/s and in processor time a message',
        prepare => sub {
            $self->{cases}->warm($self->{cases}->queue('peers-warm', ++$self->{warmed}));
            printf "%s: %s\n", $_, $peers{$_}{note} for @names;
        },
        sides => [ [ queen => sub { return with_server_time($queen->(@_)); } ], map { $side->($_) } @names ],
        judge => [ map { ahead($_) } @names ],
    };
}

sub get
{
    my ($self, $name) = @_;
    my $cases = $self->{cases};
    my $server = $self->server;
    my @names = $self->available;
    my $fill = sub { my ($queue) = @_;
        return $cases->push_load($server, $queue, push => 16, batch => 100)->{messages}; };
    my $pop = sub {
        my (%options) = @_;
        return sub { my ($round) = @_;
            my $queue = $cases->queue($name, $round);
            return $cases->pop_load($server, $queue, $fill->($queue), %options); };
    };
    my %cases = (
        'peers-single' => sub { return $self->compare(
            'other queues: single-message push, 64 connections',
            sub { return $cases->push_load($server, $cases->queue($name, $_[0])); },
            sub { return $self->push_side($_[0], 64, 1); }, @names); },
        'peers-batch' => sub { return $self->compare(
            'other queues: push in batches of 100, 16 connections',
            sub { return $cases->push_load($server, $cases->queue($name, $_[0]), push => 16, batch => 100); },
            sub { return $self->push_side($_[0], 16, 100); }, @names); },
        'peers-drain' => sub { return $self->compare(
            'other queues: drain without acknowledgements, batch 100, 8 consumers',
            $pop->('auto-ack' => ''),
            sub { return $self->pop_side($_[0], 'drain'); }, grep { $peers{$_}{drains} } @names); },
        'peers-consume' => sub { return $self->compare(
            'other queues: pop and acknowledge, batch 100, 8 consumers',
            $pop->(),
            sub { return $self->pop_side($_[0], 'consume'); }, @names); },
    );
    die "no case $name\n" unless $cases{$name};
    return { name => $name, %{ $cases{$name}->() } };
}

1;
