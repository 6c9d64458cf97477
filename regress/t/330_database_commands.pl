# Commands that want a database for themselves: the workers leave, and come back.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use QueenWorkers;
use Test::More;

my $queen = QueenWorkers::start('database_commands',
    conf => "max_worker_processes = 32\nqueen.databases = 'postgres, one, renamed'\n");
my $node = $queen->node;
$queen->sql('CREATE DATABASE one');
$node->safe_psql('one', 'CREATE EXTENSION queen');
wait_for_workers($queen);

# As a template; what is copied works.
for my $round (1 .. 3)
{
    my $old = wait_for_workers($queen, 'one');
    $queen->sql("CREATE DATABASE copy$round TEMPLATE one");
    wait_for_workers($queen, 'one', $old);
    is($node->safe_psql("copy$round", 'SELECT protocol FROM queen.log_handshake()'), 1, "copy $round works");
}

# RENAME, to a name that is listed and back; in a transaction, too.
my $old = wait_for_workers($queen, 'one');
$queen->sql('ALTER DATABASE one RENAME TO renamed');
wait_for_workers($queen, 'renamed', $old);
is_deeply(workers($queen, 'one'), {}, 'the workers follow the name');
$queen->sql('BEGIN; ALTER DATABASE renamed RENAME TO one; COMMIT');
wait_for_workers($queen, 'one');
$queen->sql('BEGIN; ALTER DATABASE one RENAME TO renamed; ROLLBACK');
$old = wait_for_workers($queen, 'one');

# A command that fails, or that a stranger sends, leaves them in peace in the end.
my $session = $node->background_psql('one');
my ($status, undef, $error) = $node->psql('postgres', 'CREATE DATABASE copy1 TEMPLATE one');
like($error, qr/already exists/, 'a command that fails');
wait_for_workers($queen, 'one');
$session->quit;
$old = wait_for_workers($queen, 'one');
$queen->sql('CREATE ROLE stranger LOGIN CREATEDB');
for my $command ('DROP DATABASE one', 'ALTER DATABASE one RENAME TO mine', 'CREATE DATABASE mine TEMPLATE one')
{
    (undef, undef, $error) = $node->psql('postgres', $command, extra_params => [ '-U', 'stranger' ]);
    like($error, qr/must be owner|permission denied/, "a stranger may not: $command");
}
is_deeply(wait_for_workers($queen, 'one'), $old, 'and does not disturb the workers');

# What an interrupted DROP DATABASE leaves lets nobody in.
$queen->sql(q{UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'one'});
wait_until(sub { !%{ workers($queen, 'one') } }, 'the workers leave an invalid database');
$queen->sql(q{UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'one'});
wait_for_workers($queen, 'one');

# DROP DATABASE right away, again and again; the counters go with it.
for my $round (1 .. 3)
{
    install_helpers($queen, 'one');
    $node->safe_psql('one', q{SELECT test.push('q', 'p', 'a')});
    wait_for_workers($queen, 'one');
    $queen->sql('DROP DATABASE one');
    pass("DROP DATABASE, round $round");
    $queen->sql('CREATE DATABASE one');
    $node->safe_psql('one', 'CREATE EXTENSION queen');
}
wait_for_workers($queen, 'one');
is(statistics($queen, 'history', 'errors'), 0, 'the other database is looked after as before');
$queen->finish;
