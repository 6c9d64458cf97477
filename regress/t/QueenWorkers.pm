# What the tests of the background workers share.
#
#   my $queen = QueenWorkers::start('name', conf => ...);
#   wait_for_workers($queen);
#   $queen->sql(q{SELECT * FROM test.push('q', 'p', 'a', 'b')});
package QueenWorkers;

use strict;
use warnings;
use Exporter 'import';
use QueenTest 'wait_until';
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(workers wait_for_workers replace_worker wait_for_log count_in_log statistics install_helpers);
our @WORKERS = ('history', 'lease expiry', 'retention', 'sidecar purge', 'wake');

# A server that waits for nothing long, with the helpers of the SQL tests in schema "test".
sub start
{
    my ($name, %options) = @_;
    my $conf = "queen.restart_interval = 1\n" . ($options{conf} || '');
    my $queen = QueenTest->new($name, %options, conf => $conf);
    install_helpers($queen, 'postgres');
    return $queen;
}

# The functions of regress/lib live in pg_temp; here they have to outlive a session.
sub install_helpers
{
    my ($queen, $database) = @_;
    my $sql = join "\n", map { slurp_file("regress/lib/$_.sql") } qw(segments consume);
    $sql =~ s/^TRUNCATE .*$//m;
    $sql =~ s/\bpg_temp\b/test/g;
    $queen->node->safe_psql($database, "CREATE SCHEMA test;\n$sql");
    return;
}

# The worker processes of a database, as pg_stat_activity shows them: name => pid.
sub workers
{
    my ($queen, $database) = @_;
    my $rows = $queen->sql(sprintf <<'SQL', $database // 'postgres');
SELECT backend_type, pid FROM pg_stat_activity WHERE backend_type LIKE 'queen %%' AND datname = '%s'
SQL
    my %workers;
    for (split /\n/, $rows)
    {
        my ($type, $pid) = split /\|/;
        die "two processes of $type" if $workers{$type};
        $workers{ $type =~ s/^queen //r } = $pid;
    }
    return \%workers;
}

# Waits until all workers of a database run, other processes than those given; returns them.
sub wait_for_workers
{
    my ($queen, $database, $but) = @_;
    my %old = map { $_ => 1 } values %{ $but || {} };
    my $workers;
    wait_until(
        sub {
            $workers = eval { workers($queen, $database) } or return 0;
            return keys %$workers == @WORKERS && !grep { $old{$_} } values %$workers;
        },
        'the workers run');
    return $workers;
}

# Terminates one worker, and returns all of them when another one has taken its place.
sub replace_worker
{
    my ($queen, $worker) = @_;
    my $pid = wait_for_workers($queen)->{$worker};
    $queen->sql("SELECT pg_terminate_backend($pid)");
    wait_until(sub { (workers($queen)->{$worker} // $pid) != $pid }, "$worker is back");
    return wait_for_workers($queen);
}

# One value of pg_stat_queen_workers.
sub statistics
{
    my ($queen, $worker, $column) = @_;
    return $queen->sql("SELECT $column FROM queen.pg_stat_queen_workers WHERE datname = 'postgres' AND worker = '$worker'");
}

sub count_in_log
{
    my ($queen, $pattern) = @_;
    my @matches = slurp_file($queen->node->logfile) =~ /$pattern/g;
    return scalar @matches;
}

sub wait_for_log
{
    my ($queen, $pattern) = @_;
    return wait_until(sub { count_in_log($queen, $pattern) }, "the log shows $pattern");
}

1;
