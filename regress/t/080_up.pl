# make up, env and down: private server and front end from nothing, twice, and away again.
use strict;
use warnings;
use Cwd 'abs_path';
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

delete @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE PGPASSFILE QUEEN_DSN)};
my $home = abs_path(PostgreSQL::Test::Utils::tempdir) . '/home';
$ENV{QUEEN_HOME} = $home;
$ENV{QUEEN_PG_PORT} = PostgreSQL::Test::Cluster::get_free_port();
$ENV{QUEEN_HTTP_PORT} = PostgreSQL::Test::Cluster::get_free_port();

sub script
{
    my ($name) = @_;
    my $output = `scripts/$name 2>&1 </dev/null`;
    return ($? >> 8, $output);
}

# Runs a command in a shell that has evaluated what "make env" prints.
sub in_env
{
    my ($command) = @_;
    my $output = `eval "\$(scripts/env)"; $command`;
    chomp $output;
    return $output;
}

END
{
    my $exit_code = $?;
    script('down');
    $? = $exit_code;
}

sub slurp_pid { return 0 + (split /\n/, slurp_file("$home/$_[0]"))[0]; }
sub mode { return sprintf '%04o', (stat "$home/$_[0]")[2] & 07777; }

my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $ENV{QUEEN_PG_PORT}, Listen => 1, ReuseAddr => 1);
my ($status, $output) = script('up');
is($status, 1, 'a taken port is refused');
like($output, qr/port $ENV{QUEEN_PG_PORT} is taken/, 'and named');
close $listener;

($status, $output) = script('up');
is($status, 0, 'up') or diag $output;
like($output, qr{http://127\.0\.0\.1:$ENV{QUEEN_HTTP_PORT}}, 'shows the address');
my ($server, $frontend) = (slurp_pid('data/postmaster.pid'), slurp_pid('frontend.pid'));
is(in_env('psql -XAtc "SELECT extname FROM pg_extension WHERE extname = \'queen\'"'), 'queen', 'psql reaches the server');
is(in_env('psql -XAtc "SHOW is_superuser"'), 'on', 'as superuser');
is(in_env('curl -s -o /dev/null -w "%{http_code}" $QUEEN_URL/health'), '200', 'curl reaches the front end');
is(mode('run'), '0700', 'the socket directory is private');
is(mode('pgpass'), '0600', 'the password file is private');
is(mode('frontend.pgpass'), '0600', 'and the front end\'s');
unlike(slurp_file("$home/data/pg_hba.conf"), qr/^[^#].*\btrust\s*$/m, 'nobody is trusted');
isnt(system("PGPASSFILE=/dev/null psql -XAtw -h 127.0.0.1 -p $ENV{QUEEN_PG_PORT} -U postgres -c 'SELECT 1' postgres >/dev/null 2>&1"),
    0, 'no password, no entry');

($status, $output) = script('up');
is($status, 0, 'up again') or diag $output;
is(slurp_pid('data/postmaster.pid'), $server, 'keeps the server');
is(slurp_pid('frontend.pid'), $frontend, 'keeps the front end');

kill 'KILL', $frontend;
($status, $output) = script('up');
is($status, 0, 'up after the front end died') or diag $output;
is(slurp_pid('data/postmaster.pid'), $server, 'keeps the server');
isnt($frontend = slurp_pid('frontend.pid'), 0, 'starts another front end');

# The variables of "make env" name the private server, also a second time.
like(in_env('scripts/up && scripts/env'), qr/^export PGPORT='$ENV{QUEEN_PG_PORT}'$/m, 'up and env after env');
is(slurp_pid('data/postmaster.pid'), $server, 'keep the server');

# A second front end on an operator's own server, whatever the name of his password file.
for my $own ({ QUEEN_DSN => "host=127.0.0.1 port=$ENV{QUEEN_PG_PORT} user=postgres dbname=queen passfile=$home/pgpass" },
    { PGHOST => '127.0.0.1', PGPORT => $ENV{QUEEN_PG_PORT}, PGUSER => 'postgres', PGDATABASE => 'queen', PGPASSFILE => "$home/pgpass" })
{
    local @ENV{keys %$own} = values %$own;
    local $ENV{QUEEN_HOME} = "$home-own";
    local $ENV{QUEEN_HTTP_PORT} = PostgreSQL::Test::Cluster::get_free_port();
    ($status, $output) = script('up');
    is($status, 0, 'up on a server that exists') or diag $output;
    ok(!-e "$home-own/data", 'makes no cluster');
    is((script('down'))[0], 0, 'down');
}

($status, $output) = script('down');
is($status, 0, 'down') or diag $output;
ok(!-e "/proc/$server/exe", 'the server is gone');
ok(!-e "$home/frontend.pid", 'the front end is gone');
is((script('down'))[0], 0, 'down again');
is((script('up'))[0], 0, 'up on the same data');
is((script('down'))[0], 0, 'down');
done_testing();
