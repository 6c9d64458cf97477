# The disk of the tables fills, then that of the WAL: pushes fail or wait in the spool, retention makes
# room, and nothing that was acknowledged is missing.
#
# Both are small file systems in a mount namespace of this test's own.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;

my @namespace;
BEGIN { @namespace = qw(unshare --user --map-current-user --keep-caps --mount); }
BEGIN
{
    if (!$ENV{QUEEN_DISK_TEST} && system("@namespace true 2>/dev/null") == 0)
    {
        $ENV{QUEEN_DISK_TEST} = 1;
        exec @namespace, $^X, (map { "-I$_" } @INC), $0;
    }
}
use PostgreSQL::Test::Utils;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

plan skip_all => 'no mount namespace of our own on this machine' unless $ENV{QUEEN_DISK_TEST};

my $queen = QueenTest->new('disk', conf => <<'CONF');
max_wal_size = 32MB
min_wal_size = 32MB
restart_after_crash = off
autovacuum = off
CONF
my $node = $queen->node;

# Puts a directory of the server's on a file system with so many MiB left.
sub make_small
{
    my ($name, $spare) = @_;
    my $directory = $node->data_dir . "/$name";
    my ($used) = `du -sm $directory` =~ /^(\d+)/;
    my $size = $used + $spare;
    rename $directory, "$directory.large" or die "$directory: $!";
    mkdir $directory, 0700 or die "$directory: $!";
    system_or_bail('mount', '-t', 'tmpfs', '-o', "size=${size}m,mode=0700", 'queen', $directory);
    system_or_bail('cp', '-a', "$directory.large/.", $directory);
    return $directory;
}

$node->stop;
my %directory = (base => make_small('base', 10), pg_wal => make_small('pg_wal', 48));
$node->start;
my $web = $queen->start_frontend(args => [ '--threads', 2 ]);
my $spooling = $queen->start_frontend(env => { FILE_BUFFER_DIR => PostgreSQL::Test::Utils::tempdir . '/spool' });

# Takes what is left of a file system, or so much, and gives it back.
sub take_space { my ($name, $mib) = @_; system("dd if=/dev/zero of=$directory{$name}/ballast bs=64k" . ($mib ? ' count=' . 16 * $mib : '') . ' 2>/dev/null'); return; }
sub give_back { my ($name) = @_; unlink "$directory{$name}/ballast" or die "ballast: $!"; return; }

sub stored { my ($queue) = @_; return $queen->sql("SELECT coalesce(sum(p.last_offset + 1), 0) FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = '$queue'"); }
sub server_log { return slurp_file($node->logfile); }
sub push_one { my ($to, $id) = @_; return $to->post('/api/v1/push', { items => [ { queue => 'big', partition => 'p', transactionId => $id, payload => join '', map { chr 33 + rand 58 } 1 .. 60_000 } ] }); }

sub start_load
{
    my ($queue, $payload) = @_;
    return QueenHistory::start(
        $queen,
        ports => [ $web->port ],
        queue => $queue,
        seconds => 300,
        producers => 8,
        partitions => 4,
        roam => 1,
        batch => 2,
        payload => $payload,
        consumers => 4,
        pop_batch => 20,
        lease => 2);
}

sub check_load
{
    my ($load, $name) = @_;
    my %refused;
    $refused{"$_->{op} $_->{status}"}++ for grep { $_->{status} >= 400 } map { $load->entries($_) } qw(push pop ack);
    note join ', ', map { "$_: $refused{$_}" } sort keys %refused;
    cmp_ok($refused{'push 503'} // 0, '>', 0, "$name: pushes are refused");
    is_deeply([ grep { !/503$/ } sort keys %refused ], [], "$name: with 503, as is all else");
    $load->drain(ports => [ $web->port ], consumers => 4, pop_partitions => 4, pop_timeout => 3000);
    $load->check_log($name);
    $load->check_groups($name);
    $load->check_drained($name, 'workers');
    return;
}

# --- the tables ----------------------------------------------------------------------------------

# Some of its messages have expired before, the others are kept until the disk is full.
my $n = 0;
sub push_big { my ($times) = @_; push_one($web, 'big-' . $n++)->{status} == 201 or die 'a push failed' for 1 .. $times; return; }
sub log_start { return $queen->sql(q{SELECT log_start FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'big'}); }
sub set_interval { my ($interval) = @_; $node->append_conf('postgresql.conf', "queen.retention_interval = $interval\n"); $node->reload; return; }

take_space('base', 3);
push_big(2);
$web->post('/api/v1/configure', { queue => 'big', options => { retentionEnabled => JSON::PP::true(), retentionSeconds => 1 } });
wait_until(sub { log_start() == 2 }, 'two messages expire');
set_interval('1h');
push_big(20);
$queen->sql('VACUUM queen.log_segments');    # as it has been before, where a disk fills
my $load = start_load('tables', 3000);
wait_until(sub { server_log() =~ /could not extend file .*No space left on device/ }, 'the disk is full');
my $response;
wait_until(sub { $response = push_one($web, 'big-' . $n++); $response->{status} != 201 }, 'a push fails');
is($response->{status}, 503, 'a full disk is 503');
like($response->{headers}{'retry-after'}, qr/^\d+$/, 'to be tried again');
$load->stop;
is(push_one($spooling, 'spooled')->{json}[0]{status}, 'buffered', 'the spool takes what the tables cannot');

# Retention needs no room; pushes do.
set_interval('100ms');
wait_until(sub { log_start() >= 22 }, 'retention deletes');
$queen->sql('VACUUM queen.log_segments');
give_back('base');
is(push_one($web, 'again')->{status}, 201, 'with room again, pushes go on');
wait_until(sub { $spooling->get('/api/v1/status/buffers')->{json}{pending} == 0 }, 'the spool is stored');
check_load($load, 'tables');
is($spooling->stop, 0, 'the spooling front end stops');
$queen->sql(q{SELECT queen.delete_queue(q) FROM unnest('{big,tables}'::text[]) AS q});
wait_until(sub { $queen->sql('SELECT count(*) FROM queen.log_segments') == 0 }, 'the queues are gone');
$queen->sql('VACUUM queen.log_segments');
QueenHistory::check_tables($queen, 'after the tables were full');
$queen->sql('CHECKPOINT');    # what recovery would replay needs the room again

# --- the WAL -------------------------------------------------------------------------------------

$load = start_load('wal', 100);
wait_until(sub { stored('wal') > 500 }, 'the load runs');
take_space('pg_wal');
wait_until(sub { $node->psql('postgres', 'SELECT pg_switch_wal()'); return server_log() =~ /PANIC: .*No space left on device/ }, 'the server cannot go on');
my $pid = $node->{_pid};
wait_until(sub { !kill 0, $pid }, 'and stops');
$node->stop('immediate', fail_ok => 1);
wait_until(sub { $web->get('/health')->{status} == 503 }, 'the front end has noticed');
give_back('pg_wal');
$node->start;
my $before = stored('wal');
wait_until(sub { stored('wal') > $before + 100 }, 'with room again, the load goes on');
$load->stop;
check_load($load, 'WAL');
QueenHistory::check_tables($queen, 'after the WAL was full');

is($web->stop, 0, 'the front end stops');
unlike($web->log, qr/AddressSanitizer|LeakSanitizer|runtime error:/, 'without a sanitizer report');
$node->stop;
unlike(server_log(), qr/TRAP:|was terminated by signal (?:4|7|8|11)\b/, 'no process crashed otherwise');
done_testing();
