# Settings of the front end, what it says at start, and how it stops.
use strict;
use warnings;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('settings', conf => "max_connections = 300\n");
my $dir = PostgreSQL::Test::Utils::tempdir;

# Runs the program to its end; returns exit code, standard output and standard error.
sub program
{
    my ($env, @args) = @_;
    local %ENV = (%ENV, %$env);
    my ($output, $error) = ('', '');
    IPC::Run::run([ $ENV{QUEEN_FRONTEND}, @args ], '<', \undef, '>', \$output, '2>', \$error);
    return ($? >> 8, $output, $error);
}
sub check_ok
{
    my ($name, $env, @args) = @_;
    my ($status, $output, $error) = program($env, '--check', @args);
    is("$status $output", "0 queen-frontend: settings are valid\n", $name) or diag $error;
    return $error;
}
sub check_fails
{
    my ($name, $expected, $env, @args) = @_;
    my ($status, undef, $error) = program($env, '--check', @args);
    is($status, 2, "$name is an error");
    like($error, qr/^queen-frontend: $expected\n/m, 'and explained');
    return;
}
sub file
{
    my ($name, $text) = @_;
    append_to_file("$dir/$name", $text);
    return "$dir/$name";
}

# --help is the documentation.
{
    my ($status, $output) = program({}, '--help');
    is($status, 0, '--help');
    my %help = map { /^  --([a-z-]+) +\S.*\n +\((.*); default (.*)\)$/ ? ($1 => "$2; $3") : () } split /^(?=  --)/m, $output;
    my %page;
    for (split /\n/, slurp_file('docs/configuration.md'))
    {
        next unless /^\| `--([a-z-]+)` \| `([^|]*)` \| (\S+) \|/;
        my ($flag, $variables, $default) = ($1, $2, $3);
        $page{$flag} = "$variables; $default" =~ s/`//gr;
    }
    ok(keys %help > 20, 'lists the settings');
    is_deeply(\%page, \%help, 'docs/configuration.md has the same names, variables and defaults');
}

# Good and bad settings.
check_ok('no settings', {});
check_ok('a flag', {}, '--port', 7000);
check_ok('with an equals sign', {}, '--port=7000');
check_ok('a variable', { PORT => 7000, QUEEN_LOG_JSON => 'Yes' });
check_ok('a file', {}, '--config', file('good', "# comment\n\n port=7000\n  log-level = debug  \nbind = 127.0.0.1\n"));
check_fails('an unknown flag', 'unknown argument "--prot" \(try --help\)', {}, '--prot', 7000);
check_fails('a stray word', 'unknown argument "7000" \(try --help\)', {}, '7000');
check_fails('a flag without its value', '--port needs a value', {}, '--port');
check_fails("port $_", qr/--port: "\Q$_\E" is not a number from 0 to 65535/, {}, '--port', $_) for '', 'x', '80x', -1, 65536, '1e3', '9' x 30;
check_fails('a bad variable', 'PORT: "x" is not a number from 0 to 65535', { PORT => 'x' });
check_fails('a bad variable that a flag overrides', 'PORT: "x" is not a number from 0 to 65535', { PORT => 'x' }, '--port', 7000);
check_fails('no boolean', 'QUEEN_LOG_JSON: "maybe" is neither true nor false', { QUEEN_LOG_JSON => 'maybe' });
check_fails('no level', '--log-level: "loud" is not one of .*', {}, '--log-level', 'loud');
check_fails('intervals that contradict each other', 'poll-initial is larger than poll-max', {}, '--poll-initial', 2000);
check_fails('a connection string that is none', 'dsn is not a connection string as libpq reads it', {}, '--dsn', 'secret');
check_fails('a file that does not exist', 'could not open configuration file ".*nowhere": No such file or directory', {}, '--config', "$dir/nowhere");
check_fails('an unknown setting in a file', '.*bad line 2: unknown setting "prot"', {}, '--config', file('bad', "port = 1\nprot = 2\n"));
check_fails('a line that sets nothing', '.*bad2 line 1: unknown setting "port"', {}, '--config', file('bad2', "port\n"));
check_fails('a bad value in a file', '.*bad3 line 1: "x" is not a number from 0 to 65535', {}, '--config=' . file('bad3', "port = x\n"));
like(check_ok('names of other servers', { NUM_WORKERS => 10, DB_POOL_SIZE => 5 }),
    qr/warn these variables have no meaning here and are ignored names="NUM_WORKERS, DB_POOL_SIZE"\n/, 'are named in one warning');
is(check_ok('nothing to warn about', {}), '', 'no warning');

# Which one counts, and what a start says.
{
    my $all = file('mode', "subscription-mode = all\n");
    my $mode = sub {
        my (%options) = @_;
        my ($mode) = $queen->start_frontend(%options)->log =~ /listening .* subscription_mode="(.*)"/;
        return $mode;
    };
    is($mode->(args => [ '--config', $all ]), 'all', 'a file');
    is($mode->(args => [ '--config', $all ], env => { DEFAULT_SUBSCRIPTION_MODE => 'new' }), 'new', 'beaten by a variable');
    is($mode->(args => [ '--subscription-mode=all', '--config', $all ], env => { DEFAULT_SUBSCRIPTION_MODE => 'new' }), 'all',
        'beaten by a flag');

    my $json = $queen->start_frontend(args => [ qw(--log-json true --bind 0.0.0.0 --log-level debug) ]);
    my @lines = map { JSON::PP->new->decode($_) } split /\n/, $json->log;
    is(scalar(grep { $_->{time} !~ /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/ || !$_->{message} || !$_->{level} } @lines), 0,
        'JSON lines with time, level and message');
    is(scalar(grep { $_->{level} eq 'warn' && $_->{message} eq 'listening beyond loopback without authentication' } @lines), 1,
        'a server open to the network warns');
    is_deeply([ map { $_->{setting} } grep { $_->{message} =~ /can lose acknowledged messages/ } @lines ], ['fsync'],
        'and about a database that may lose data');
    unlike($queen->start_frontend(args => [qw(--log-level error)])->log, qr/./, 'silence when asked for');

    my $free = $queen->start_frontend(args => [ '--port', 0 ], may_fail => 1);
    ($free->{port}) = wait_until(sub { $free->log =~ /listening .* port="(\d+)"/ && $1 }, 'it listens');
    $free->wait_healthy;
    isnt($free->port, 0, 'port 0 picks a port');

    my $nowhere = $queen->start_frontend(args => [ '--bind', 'nowhere.example' ], may_fail => 1);
    is($nowhere->wait_ended >> 8, 1, 'a name is no address to bind to');
    like($nowhere->log, qr/error not an IP address to bind to bind="nowhere.example"/, 'and that is said');
}

# How the database is found.
{
    my $node = $queen->node;
    my %none = map { $_ => undef } qw(PGHOST PGPORT PGUSER PGDATABASE);
    my %spelled = (PG_HOST => $node->host, PG_PORT => $node->port, PG_USER => 'queen_web', PG_DATABASE => 'postgres', PG_PASSWORD => 'x');
    is($queen->start_frontend(env => { %none, %spelled })->get('/health')->{status}, 200, 'PG_HOST and its family');
    is($queen->start_frontend(env => { %none, %spelled, PG_DATABASE => undef, PG_DB => 'postgres' })->get('/health')->{status}, 200, 'PG_DB');
    is($queen->start_frontend(env => { PG_HOST => '/nowhere', PG_DB => 'nothing' })->get('/health')->{status}, 200,
        'libpq\'s own variables come first');
    my $dsn = sprintf 'host=%s port=%d user=queen_web dbname=postgres', $node->host, $node->port;
    is($queen->start_frontend(env => \%none, args => [ '--dsn', $dsn ])->get('/health')->{status}, 200, 'a connection string');
}

# Databases that do not fit are refused with advice.
sub refused
{
    my ($name, $reason, %options) = @_;
    my $web = $queen->start_frontend(%options, may_fail => 1);
    wait_until(sub { $web->log =~ $reason }, "$name is noticed");
    pass("$name is refused with a reason");
    is($web->get('/health')->{status}, 503, 'and not used');
    return $web;
}
{
    refused('a database without the extension', qr/extension queen is missing .* in database \\"template1\\"/,
        env => { PGDATABASE => 'template1' });
    my $handshake = sub {
        $queen->sql("CREATE OR REPLACE FUNCTION queen.log_handshake(OUT protocol int, OUT version text) LANGUAGE sql STABLE
                     SECURITY DEFINER SET search_path = pg_catalog, queen, pg_temp AS \$\$ SELECT $_[0], '9.9' \$\$");
    };
    my $own = $queen->sql('SELECT protocol FROM queen.log_handshake()');
    $handshake->($own + 1);
    my $web = refused('a newer extension', qr/the extension is newer than this front end: upgrade the front end/);
    $handshake->($own - 1);
    refused('an older extension', qr/the extension is older than this front end: upgrade the extension \(ALTER EXTENSION queen UPDATE\)/);
    $handshake->($own);
    wait_until(sub { $web->post('/api/v1/push', { items => [ { queue => 'q', payload => 1 } ] })->{status} == 201 }, 'a push works');
    pass('what was refused is tried again');
}
SKIP:
{
    my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
    skip 'no pgbouncer on this machine', 4 unless $pgbouncer;
    for my $pool (qw(session transaction))
    {
        my $port = PostgreSQL::Test::Cluster::get_free_port();
        my $node = $queen->node;
        file("users-$pool", qq("queen_web" ""\n));
        my $ini = file("$pool.ini", join "\n", '[databases]', sprintf('postgres = host=%s port=%d', $node->host, $node->port), '[pgbouncer]',
            'listen_addr = 127.0.0.1', "listen_port = $port", 'unix_socket_dir =', 'auth_type = trust', "auth_file = $dir/users-$pool",
            "pool_mode = $pool", "logfile = $dir/$pool.log", '');
        my $pooler = IPC::Run::start([ $pgbouncer, $ini ], '<', \undef, '>', \my $output, '2>', \my $error);
        refused("a pooler in $pool mode", qr/a connection pooler is in between/, env => { PGHOST => '127.0.0.1', PGPORT => $port });
        $pooler->kill_kill;
    }
}

# Stopping. The held partition keeps a push in flight.
{
    my $session = $queen->node->background_psql('postgres', on_error_stop => 1);
    my $in_flight = sub {
        my (@args) = @_;
        my $web = $queen->start_frontend(args => [ '--lock-timeout', 100000, @args ]);
        $web->push({ queue => 'stop', payload => 0 });
        $session->query_safe(q{BEGIN; SELECT FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
                               WHERE q.name = 'stop' FOR UPDATE OF p});
        my ($push, $poll) = map { $web->connect } 1 .. 2;
        $push->send('POST', '/api/v1/push', { items => [ { queue => 'stop', payload => 1 } ] });
        $poll->send('GET', '/api/v1/pop/queue/empty?wait=true&timeout=100000');
        wait_until(
            sub {
                $web->get('/metrics')->{json}{queen}{parkedPops} == 1
                  && $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web' AND wait_event_type = 'Lock'}) == 1;
            },
            'one poll is parked, one push waits');
        kill 'TERM', $web->pid;
        is($poll->receive->{status}, 204, 'SIGTERM: a parked poll is answered');
        return ($web, $push);
    };
    my $stored = sub { return $queen->sql(q{SELECT p.last_offset FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
                                            WHERE q.name = 'stop'}) };

    my ($web, $push) = $in_flight->('--shutdown-timeout', 100000);
    ok(!eval { $web->connect }, 'no connection is accepted any more');
    ok(!$push->readable, 'a push in flight goes on');
    $session->query_safe('COMMIT');
    is($push->receive->{json}[0]{status}, 'queued', 'and is answered');
    is($web->wait_ended, 0, 'then the server ends with code 0');
    is($stored->(), 1, 'the message is stored');
    like($web->log, qr/shutting down\n.*stopped\n\z/s, 'and the log tells');

    ($web, $push) = $in_flight->('--shutdown-timeout', 100);
    my $response = $push->receive;
    is($response->{status}, 503, 'a push that takes longer than it may is answered, too');
    ok($response->{headers}{'retry-after'}, 'with the advice to try again');
    is($web->wait_ended, 0, 'and is no failure of the server');
    $session->query_safe('COMMIT');

    ($web, $push) = $in_flight->('--shutdown-timeout', 100000);
    kill 'TERM', $web->pid;
    is($web->wait_ended >> 8, 1, 'a second SIGTERM ends it at once');
    like($web->log, qr/shutting down at once\n\z/, 'and says so');
    $session->query_safe('COMMIT');
    $session->quit;

    $web = $queen->start_frontend;
    kill 'HUP', $web->pid;
    is($web->get('/health')->{status}, 200, 'SIGHUP does not end it');
    my $idle = $web->connect;
    $idle->send('GET', '/status');
    $idle->receive;
    is($web->stop, 0, 'a connection that idles does not hold it up');
    $web->start;
    $web->wait_healthy;
    pass('the port is free again at once');
}

$queen->finish;
