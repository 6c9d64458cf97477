# Harness of the TAP tests: a private PostgreSQL with the extension, front ends on free
# ports, and an HTTP client that shows the bytes.
#
#   my $queen = QueenTest->new('main', conf => "synchronous_commit = off\n");
#   my $web = $queen->start_frontend(args => [ '--threads', 1 ], env => { LOG_LEVEL => 'debug' });
#   is($web->post('/api/v1/push', { items => [...] })->{status}, 201, 'pushed');
#   $queen->finish;    # stops everything, looks through the logs, done_testing
#
# Nothing here waits for a fixed time: what is awaited is polled, with the time limit of
# PostgreSQL's own tests.
package QueenTest;

use strict;
use warnings;
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'sleep';

our @EXPORT_OK = qw(wait_until raw_payloads is_error routes);

# A server with the extension in database "postgres" and a login for front ends.
# Options: conf (text for postgresql.conf), init (arguments of Cluster's init).
sub new
{
    my ($class, $name, %options) = @_;
    my $node = PostgreSQL::Test::Cluster->new($name);
    $node->init(%{ $options{init} || {} }, extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
    $node->append_conf('postgresql.conf',
        "shared_preload_libraries = 'queen'\nlog_statement = none\n" . ($options{conf} || ''));
    $node->start;
    $node->safe_psql('postgres', 'CREATE EXTENSION queen; CREATE ROLE queen_web LOGIN IN ROLE queen_frontend');
    return bless { node => $node, frontends => [] }, $class;
}

sub node { return $_[0]{node}; }

# Runs a query as superuser and returns its output.
sub sql
{
    my ($self, $query) = @_;
    return $self->{node}->safe_psql('postgres', $query);
}

# Kills the postmaster, and waits until the processes that it leaves behind have ended, too.
sub kill_postmaster
{
    my ($self) = @_;
    my ($pid) = slurp_file($self->{node}->data_dir . '/postmaster.pid') =~ /^(\d+)/;
    kill 'STOP', $pid;    # or it starts more of them
    my @children = split ' ', slurp_file("/proc/$pid/task/$pid/children");
    $self->{node}->kill9;
    wait_until(sub { !grep { kill 0, $_ } $pid, @children }, 'no server process is left');
    return;
}

# Starts one more front end and waits until it is healthy.
# Options: args, env (undef: not set), port; may_fail returns it without waiting.
sub start_frontend
{
    my ($self, %options) = @_;
    my $web = QueenTest::Frontend->new($self->{node}, scalar @{ $self->{frontends} }, %options);
    push @{ $self->{frontends} }, $web;
    $web->start;
    $web->wait_healthy unless $options{may_fail};
    return $web;
}

# Ends the test: every front end must stop with exit code 0, and no log may show a crash.
sub finish
{
    my ($self) = @_;
    for my $web (@{ $self->{frontends} })
    {
        is($web->stop, 0, $web->{name} . ' stops cleanly') if $web->running;
        unlike($web->log, qr/AddressSanitizer|LeakSanitizer|runtime error:/,
            $web->{name} . ' has no sanitizer report');
    }
    $self->{node}->stop('fast');
    unlike(slurp_file($self->{node}->logfile), qr/PANIC:|TRAP:|was terminated by signal (?:4|6|7|8|11)\b/,
        'no server process crashed');
    done_testing();
    return;
}

# Polls until the function returns true; dies with the description when it never does.
sub wait_until
{
    my ($function, $what) = @_;
    for (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
    {
        my $result = $function->();
        return $result if $result;
        sleep 0.05;
    }
    die "timed out waiting until $what";
}

# Tests that an answer is the JSON error, and nothing else.
sub is_error
{
    my ($response, $status, $error, $name, %members) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is_deeply(
        [ $response->{status}, $response->{headers}{'content-type'}, $response->{json} ],
        [ $status, 'application/json', { error => $error, %members } ], $name);
    return;
}

# The payloads of a pop's answer as the bytes they came in: the value of "data" of every
# element of "messages".
sub raw_payloads
{
    my ($body) = @_;
    my $depth = 0;
    my ($start, @payloads);
    while ($body =~ /\G\s*("[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+)/gcs)
    {
        my ($token, $offset) = ($1, $-[1]);
        $depth-- if $token =~ /^[}\]]/;
        if (defined $start && ($depth == 2 || ($depth == 3 && $token eq ',')))
        {
            push @payloads, substr($body, $start, $offset - $start) =~ s/\s+\z//r;
            undef $start;
        }
        $depth++ if $token =~ /^[{\[]/;
        $start = pos $body if $depth == 3 && $token eq '"data"' && $body =~ /\G\s*:\s*/gc;
    }
    return @payloads;
}

# The routes of the front end as its table has them: [ method, path, level ].
sub routes
{
    my $source = slurp_file("$FindBin::Bin/../../src/frontend/route.c");
    my @routes;
    push @routes, [ $1, $2, $3 ] while $source =~ /\{"([A-Z]+)", "([^"]+)",\s*LEVEL_(\w+)/g;
    die 'the table of routes is not read' if @routes < 10;
    return @routes;
}

# One front end process.
package QueenTest::Frontend;

use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;
use POSIX ':sys_wait_h';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $json = JSON::PP->new->utf8->canonical->allow_nonref->max_depth(1000);
my %processes;

sub new
{
    my ($class, $node, $number, %options) = @_;
    my $name = $node->name . "_frontend$number";
    return bless {
        name => $name,
        node => $node,
        port => $options{port} || PostgreSQL::Test::Cluster::get_free_port(),
        args => $options{args} || [],
        env => $options{env} || {},
        logfile => "$PostgreSQL::Test::Utils::log_path/$name.log",
    }, $class;
}

sub port { return $_[0]{port}; }
sub pid { return $_[0]{pid}; }
sub log { return -e $_[0]{logfile} ? PostgreSQL::Test::Utils::slurp_file($_[0]{logfile}) : ''; }    ## no critic
sub url { return "http://127.0.0.1:$_[0]{port}"; }

sub start
{
    my ($self) = @_;
    my $node = $self->{node};
    my $pid = fork() // die "fork: $!";
    if ($pid == 0)
    {
        my %env = (
            %ENV,
            PGHOST => $node->host,
            PGPORT => $node->port,
            PGUSER => 'queen_web',
            PGDATABASE => 'postgres',
            FILE_BUFFER_DIR => '',    # no spool, unless a test gives it a place
            %{ $self->{env} });
        delete @env{ grep { !defined $env{$_} } keys %env };
        %ENV = %env;
        open STDIN, '<', '/dev/null';
        open STDERR, '>>', $self->{logfile};
        open STDOUT, '>&', \*STDERR;
        exec($ENV{QUEEN_FRONTEND}, '--port', $self->{port}, @{ $self->{args} }) or POSIX::_exit(127);
    }
    $processes{$pid} = 1;
    $self->{pid} = $pid;
    return;
}

# Collects the process when it has ended; its wait status is kept.
sub running
{
    my ($self) = @_;
    return 0 unless $self->{pid};
    return 1 unless waitpid($self->{pid}, WNOHANG) == $self->{pid};
    $self->{status} = $?;
    delete $processes{ $self->{pid} };
    undef $self->{pid};
    return 0;
}

sub wait_healthy
{
    my ($self) = @_;
    QueenTest::wait_until(
        sub {
            $self->running or die "$self->{name} ended early: " . $self->log;
            my $response = eval { $self->get('/health') };
            return $response && $response->{status} == 200;
        },
        "$self->{name} is healthy");
    return;
}

# Waits until the process has ended; returns its wait status.
sub wait_ended
{
    my ($self) = @_;
    QueenTest::wait_until(sub { !$self->running }, "$self->{name} has ended");
    return $self->{status};
}

sub stop
{
    my ($self) = @_;
    kill 'TERM', $self->{pid};
    return $self->wait_ended;
}

sub kill9
{
    my ($self) = @_;
    kill 'KILL', $self->{pid};
    return $self->wait_ended;
}

sub restart
{
    my ($self) = @_;
    $self->stop if $self->running;
    $self->start;
    $self->wait_healthy;
    return;
}

# A connection of its own, for keep-alive, for parked polls and for hostile bytes.
sub connect    ## no critic
{
    my ($self) = @_;
    return QueenTest::Connection->new($self->{port});
}

# One request on a fresh connection. A reference as body is encoded, a string is sent as it is.
sub request
{
    my ($self, $method, $path, $body, %headers) = @_;
    my $connection = $self->connect;
    $connection->send($method, $path, $body, %headers);
    return $connection->receive;
}

sub get { my ($self, $path, %headers) = @_; return $self->request('GET', $path, undef, %headers); }
sub post { my ($self, $path, $body, %headers) = @_; return $self->request('POST', $path, $body, %headers); }

# Pushes items (as in the request's "items") and returns the decoded answer.
sub push    ## no critic
{
    my ($self, @items) = @_;
    my $response = $self->post('/api/v1/push', { items => \@items });
    die "push answered $response->{status}: $response->{body}" unless $response->{status} == 201;
    return $response->{json};
}

# Pops with the query parameters given; "partition" is part of the path. Returns the
# messages, none for 204.
sub pop    ## no critic
{
    my ($self, $queue, %parameters) = @_;
    my $partition = delete $parameters{partition};
    my $path = '/api/v1/pop/queue/' . escape($queue);
    $path .= '/partition/' . escape($partition) if defined $partition;
    my $query = join '&', map { "$_=" . escape($parameters{$_}) } sort keys %parameters;
    my $response = $self->get($query eq '' ? $path : "$path?$query");
    return () if $response->{status} == 204;
    die "pop answered $response->{status}: $response->{body}" unless $response->{status} == 200;
    return @{ $response->{json}{messages} };
}

# Acknowledges messages as pop returned them, with one status; returns the decoded answer.
sub ack
{
    my ($self, $status, @messages) = @_;
    my $response = $self->post(
        '/api/v1/ack/batch',
        {
            consumerGroup => $messages[0]{consumerGroup},
            acknowledgments => [
                map {
                    {
                        transactionId => $_->{transactionId},
                        partitionId => $_->{partitionId},
                        leaseId => $_->{leaseId},
                        status => $status
                    }
                } @messages
            ]
        });
    die "ack answered $response->{status}: $response->{body}" unless $response->{status} == 200;
    return $response->{json};
}

sub escape
{
    my ($text) = @_;
    utf8::encode($text);
    $text =~ s/([^A-Za-z0-9._~-])/sprintf '%%%02X', ord $1/ge;
    return $text;
}

END
{
    my $status = $?;
    kill 'KILL', keys %processes if %processes;
    $? = $status;
}

# One connection to a front end.
package QueenTest::Connection;

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Socket 'SO_RCVBUF';

sub new
{
    my ($class, $port, %options) = @_;    # rcvbuf: bytes that the kernel may buffer
    my $rcvbuf = $options{rcvbuf};
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1',
        PeerPort => $port,
        Sockopts => [ $rcvbuf ? [ SO_RCVBUF, $rcvbuf ] : () ])
      or die "cannot connect to port $port: $@";
    return bless { socket => $socket, buffer => '' }, $class;
}

# Sends one request; the answer is fetched with receive.
sub send    ## no critic
{
    my ($self, $method, $path, $body, %headers) = @_;
    $body = $json->encode($body) if ref $body;
    $headers{Host} //= '127.0.0.1';
    $headers{'Content-Length'} //= length $body if defined $body && !$headers{'Transfer-Encoding'};
    my $head = join '', map { "$_: $headers{$_}\r\n" } sort keys %headers;
    return $self->write("$method $path HTTP/1.1\r\n$head\r\n" . ($body // ''));
}

# Writes bytes as they are; false when the peer has gone.
sub write    ## no critic
{
    my ($self, $bytes) = @_;
    local $SIG{PIPE} = 'IGNORE';
    while (length $bytes)
    {
        my $written = syswrite $self->{socket}, $bytes or return 0;
        substr $bytes, 0, $written, '';
    }
    return 1;
}

# Reads one answer: { status, headers (lower-case names), body, json }; "json" is left out
# when the body is large, decoding it in Perl takes seconds. Undef when the connection ended
# before an answer began.
sub receive
{
    my ($self, $no_body) = @_;
    until ($self->{buffer} =~ /\r\n\r\n/) { $self->fill or return; }
    $self->{buffer} =~ s/^HTTP\/1\.[01] (\d{3})[^\r]*\r\n((?:[^\r]+\r\n)*)\r\n//
      or die "not an HTTP answer: $self->{buffer}";
    my ($status, $head) = ($1, $2);
    return $self->receive($no_body) if $status == 100;
    my %headers = map { /^([^:]+):\s*(.*?)\s*$/ ? (lc $1, $2) : () } split /\r\n/, $head;
    my $body = $no_body || $status == 204 ? '' : $self->body(\%headers);
    my %response = (status => $status, headers => \%headers, body => $body);
    $response{json} = $json->decode($body)
      if $body ne '' && length $body < 1024 * 1024 && ($headers{'content-type'} // '') =~ m{application/json};
    return \%response;
}

sub body
{
    my ($self, $headers) = @_;
    return $self->take($headers->{'content-length'}) if defined $headers->{'content-length'};
    return $self->read_all unless ($headers->{'transfer-encoding'} // '') eq 'chunked';
    my $body = '';
    while (1)
    {
        until ($self->{buffer} =~ s/^([0-9A-Fa-f]+)[^\r]*\r\n//) { $self->fill or die 'chunk cut short'; }
        my $size = hex $1;
        $body .= $self->take($size);
        $self->take(2);
        return $body if $size == 0;
    }
}

sub take
{
    my ($self, $size) = @_;
    until (length $self->{buffer} >= $size) { $self->fill or die 'answer cut short'; }
    return substr $self->{buffer}, 0, $size, '';
}

# Everything until the peer closes.
sub read_all
{
    my ($self) = @_;
    1 while $self->fill;
    my $bytes = $self->{buffer};
    $self->{buffer} = '';
    return $bytes;
}

# Whether bytes, or the peer's close, are there to be read now.
sub readable
{
    my ($self, $seconds) = @_;
    return $self->{buffer} ne '' || IO::Select->new($self->{socket})->can_read($seconds // 0);
}

sub fill
{
    my ($self) = @_;
    IO::Select->new($self->{socket})->can_read($PostgreSQL::Test::Utils::timeout_default)
      or die 'timed out waiting for an answer';
    return sysread $self->{socket}, $self->{buffer}, 65536, length $self->{buffer};
}

sub shutdown_write { return shutdown $_[0]{socket}, 1; }

sub close    ## no critic
{
    my ($self) = @_;
    return CORE::close($self->{socket});
}

1;
