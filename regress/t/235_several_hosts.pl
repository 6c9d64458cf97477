# A connection string with several hosts: one that swallows packets, refuses, or is a standby is
# passed over, and the primary is found again wherever it goes.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use QueenTest qw(is_error wait_until);
use Socket qw(:DEFAULT SOCK_NONBLOCK);
use Test::More;

my $queen = QueenTest->new('hosts', init => { allows_streaming => 1 }, conf => "max_connections = 40\n");
my $primary = $queen->node;
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('hosts_standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my @silent;

# The port of a listener that accepts nothing and whose queue is full: who connects hears nothing.
sub silent_port
{
    my $loopback = sub { return sockaddr_in($_[0], INADDR_LOOPBACK); };
    my $open = sub { socket my $s, PF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0 or die "socket: $!"; push @silent, $s; return $s; };
    my $listener = $open->();
    bind $listener, $loopback->(0) or die "bind: $!";
    listen $listener, 1 or die "listen: $!";
    my ($port) = sockaddr_in(getsockname $listener);
    my $last;
    for (1 .. 8) { $last = $open->(); connect $last, $loopback->($port) }
    ok(!getpeername $last, 'a host that swallows packets');
    return $port;
}

# The arguments of a front end that knows these servers: nodes, or ports of this machine.
sub several
{
    my ($more, @servers) = @_;
    return (args => [ '--threads', 1, '--dsn', "user=queen_web dbname=postgres $more host=" . join(',', map { ref $_ ? $_->host : '127.0.0.1' } @servers)
        . ' port=' . join(',', map { ref $_ ? $_->port : $_ } @servers) ]);
}
sub push_one { my ($web, $id) = @_; return $web->post('/api/v1/push', { items => [ { queue => 'q', transactionId => $id, payload => {} } ] })->{status}; }
sub pass_over
{
    my ($name, @servers) = @_;
    my $web = $queen->start_frontend(several('connect_timeout=2', @servers));
    is(push_one($web, $name), 201, "$name is passed over");
    return $web;
}

my $silent = silent_port();
my $refused = PostgreSQL::Test::Cluster::get_free_port();
pass_over('a silent host', $silent, $primary)->stop;
pass_over('a host that refuses', $refused, $primary)->stop;
pass_over('one of each kind', $silent, $refused, $standby, $primary)->stop;

# It stops in good order while it still tries the first of several silent hosts.
{
    my $waiting = $queen->start_frontend(several('connect_timeout=60', $silent, $silent), env => { QUEEN_SHUTDOWN_TIMEOUT_MS => 0 }, may_fail => 1);
    wait_until(sub { eval { $waiting->get('/metrics')->{status} } }, 'it listens');
    my @clients = map { $waiting->connect } 1 .. 2;
    $clients[0]->send('POST', '/api/v1/push', { items => [ { queue => 'q', payload => {} } ] });
    $clients[1]->send('GET', '/api/v1/pop/queue/q');
    wait_until(sub { $waiting->get('/metrics')->{json}{queen}{popRequests} > 0 }, 'requests wait');
    is($waiting->stop, 0, 'it stops while they do');
    is($clients[0]->receive->{status}, 503, 'a push is refused');
    is($clients[1]->receive->{status}, 204, 'a pop gets nothing');
}

# Without a primary it says so, again and again until there is one, and logs each host's error once.
my $web = pass_over('a standby', $standby, $primary);
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
wait_until(sub { $web->get('/health')->{status} == 503 }, 'no primary is noticed');
is(push_one($web, 'nowhere'), 503, 'no primary');
$standby->promote;
wait_until(sub { $web->get('/health')->{status} == 200 }, 'the new primary is found');
is(push_one($web, 'promoted'), 201, 'and used');
is($standby->safe_psql('postgres', q{SELECT sum(last_offset + 1) FROM queen.log_partitions}), 5, 'with all that was acknowledged');
my %logged;
$logged{$_}++ for map { s/^.*?(?=lane=)//r } grep { /database connection failed/ && !/lane="(?:push|read|wait)"/ } split /\n/, $web->log;
is_deeply([ grep { $logged{$_} > 2 } sort keys %logged ], [], 'errors are not repeated');
$web->stop;

$standby->stop;
$queen->finish;
