# The benchmarks: short runs against a small server. What is wrong is counted and fails the run;
# the arithmetic of the report is done again here.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP;
use List::Util 'sum';
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;
use Time::HiRes 'time';

my $queen = QueenTest->new('bench', conf => "fsync = on\n");    # or the runner refuses
my $web = $queen->start_frontend;
my $root = "$FindBin::Bin/../..";
my $results = PostgreSQL::Test::Utils::tempdir();
my $json = JSON::PP->new;

# Runs a program of the benchmarks; returns its exit code, and what it printed.
sub run_program
{
    my (@command) = @_;
    my ($out, $err);
    local @ENV{qw(PGHOST PGPORT PGDATABASE)} = ($queen->node->host, $queen->node->port, 'postgres');
    IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err);
    return ($? >> 8, $out, $err);
}

sub generate
{
    my (@arguments) = @_;
    my ($code, $out, $err) = run_program("$root/build/queen-bench", '--port', $web->port, @arguments);
    return ($code, $json->decode((split /\n/, $out)[-1]), $err);
}

sub run_cases
{
    my (@arguments) = @_;
    return run_program("$root/bench/run", '--url', $web->url, '--results', $results, '--seconds', 0.3, @arguments);
}

sub stored
{
    my ($queue) = @_;
    return $queen->sql(qq{SELECT coalesce(sum(p.last_offset + 1), 0) FROM queen.log_partitions AS p
        JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = '$queue'});
}

# --- the runner's command line ---------------------------------------------------------------

for my $asked ([ '--help', qr/^usage: bench\/run/, undef ], [ 'list', qr/^push-single$/m, undef ], [ 'nonsense', undef, qr/no case nonsense/ ])
{
    my ($argument, $output, $message) = @$asked;
    my ($code, $out, $err) = run_program("$root/bench/run", $argument);
    is($code == 0, !$message, "bench/run $argument");
    like($out, $output, 'its output') if $output;
    like($err, $message, 'its message') if $message;
}

# --- the load generator ---------------------------------------------------------------------

my ($code, $report) = generate(qw(--queue full --push 4 --batch 10 --partitions 5 --messages 600));
is($code, 0, 'a push without errors');
is($report->{pushed}, 600, 'all are counted');
is(stored('full'), 600, 'and stored');
is($report->{push_us}{count}, 60, 'a latency per request');
ok($report->{push_us}{p50} <= $report->{push_us}{p99} && $report->{push_us}{p99} <= $report->{push_us}{max},
    'percentiles ascend');

($code, $report) = generate(qw(--queue full --pop 3 --pop-batch 50 --auto-ack --messages 600 --group d));
is_deeply([ $code, @$report{qw(delivered acknowledged duplicates missing errors)} ], [ 0, 600, 600, 0, 0, 0 ],
    'a drain gets each message once');

($code, $report) = generate(qw(--queue full --pop 4 --groups 2 --messages 600));
is_deeply([ $code, @$report{qw(delivered acknowledged duplicates missing errors)} ], [ 0, 1200, 1200, 0, 0, 0 ],
    'two groups get and acknowledge each message once');
is($queen->sql(q{SELECT sum(c.committed + 1) FROM queen.log_consumers AS c WHERE c.consumer_group ~ '^g'}), 1200,
    'the cursors say the same');

($code, $report) =
  generate(qw(--queue open --push 4 --rate 300 --messages 90 --partitions 3 --pop 3 --pinned --auto-ack));
is_deeply([ $code, @$report{qw(pushed delivered)} ], [ 0, 90, 90 ], 'pushes to parked consumers');
is($report->{delivery_us}{count}, 90, 'each delivery has a latency');
ok($report->{seconds} >= 89 / 300, 'the open loop keeps to its rate');

my @twice = qw(--queue twice --push 2 --batch 10 --messages 100 --partitions 1);
($code) = generate(@twice);
is($code, 0, 'the first time');
($code, $report, my $err) = generate(@twice);
is_deeply([ $code, @$report{qw(pushed errors)} ], [ 1, 0, 10 ], 'duplicates are no messages but errors');
like($err, qr/push: answered 201 .*"status":"duplicate"/, 'which are shown');

($code, $report) = generate(qw(--queue full --pop 2 --auto-ack --first 300 --messages 400 --group e));
is($code, 1, 'messages that are not awaited are errors');
ok($report->{duplicates} >= 100, 'counted with those that came twice');

($code, $report) = generate(qw(--queue nobody --park 20 --seconds 0.1));
is_deeply([ $code, $report->{errors} ], [ 0, 0 ], 'polls stay parked');

# --- the floors -----------------------------------------------------------------------------

$queen->sql('CREATE TABLE floor_segments (LIKE queen.log_segments INCLUDING ALL);
    CREATE TABLE floor_txns (LIKE queen.log_txns INCLUDING ALL)');
my $stored = 0;
for my $connections (1, 2)
{
    ($code, my $printed) = run_program("$root/build/db-floor", $connections, 0.1, 3, 5000, 10);
    my $floor = $json->decode($printed);
    $stored += $floor->{pushed};
    is($floor->{pushed}, 30 * $floor->{commits}, 'three segments of ten messages a commit');
}
is($queen->sql('SELECT sum(end_offset - base_offset + 1) FROM floor_segments WHERE length(blob) = 5000'), $stored,
    'the database floor stores segments');
is($queen->sql('SELECT sum(length(hashes) / 16) FROM floor_txns'), $stored, 'and hashes');
$queen->sql('DROP TABLE floor_segments, floor_txns');

($code, my $printed) = run_program("$root/build/commit-time", "$results/file", 20);
is($json->decode($printed)->{count}, 20, 'the commit time is that of as many writes as were asked for');
my $started = time;
($code, $printed) = run_program("$root/build/commit-time", "$results/file", 20, 100);
is($json->decode($printed)->{count}, 20, 'the same at a pace');
cmp_ok(time - $started, '>=', 0.19, 'which is kept');

# --- the runner -----------------------------------------------------------------------------

($code, my $out, $err) = run_cases('push-single', 'drain');
is($code, 0, 'two cases') or diag $out, $err;
like($out, qr/^durability +synchronous_commit = on, fsync = on/m, 'the configuration is printed');

my $kept = $json->decode(slurp_file("$results/push-single.json"));
my @rounds = @{ $kept->{rounds} };
is(scalar @rounds, 3, 'three rounds');
my @ratios = sort { $a <=> $b } map { $_->{queen}{rate} / $_->{'HTTP floor'}{rate} } @rounds;
my $judged = $kept->{judged}[0];
is_deeply([ map { sprintf '%.9f', $_ } @{ $judged->{values} }, $judged->{median} ],
    [ map { sprintf '%.9f', $_ } @ratios, $ratios[1] ], 'ratios of each round, and their median');
is($judged->{met}, $ratios[1] >= 0.5 ? 1 : 0, 'the verdict is of the median');
for my $side (map { $_->{queen} } @rounds)
{
    is(sprintf('%.6f', $side->{rate}), sprintf('%.6f', $side->{pushed} / $side->{seconds}), 'rate');
    ok($side->{commits_per_message} > 0 && $side->{commits_per_message} <= 1, 'commits');
    ok($side->{wal_per_message} > 100, 'WAL');
    ok($side->{frontend_per_message} > 0 && $side->{postgres_per_message} > 0, 'processor time');
    ok($side->{memory} > 1024 * 1024, 'memory');
}
is(stored_by_cases(), counted_by_cases(), 'what the runner counted is what is stored');
my $shown = sprintf '%.1f %%', 100 * $ratios[1];
like($out, qr/^ +queen \/ HTTP floor: \Q$shown\E /m, 'the ratio is printed');

(undef, my $markdown) = run_program("$root/bench/run", '--results', $results, 'report');
like($markdown, qr/^\| single-message push[^|]*\|[^|]*\| queen \/ HTTP floor: [\d.]+ % \[[\d.]+ % to [\d.]+ %\] \| (?:yes|\*\*no\*\*) \| `bench\/run push-single` \|$/m,
    'the report has a row per case');
like($markdown, qr/^Not run: push-wide, push-batch, ack,/m, 'and names those that were not run');

# Without durability nothing is measured.
$queen->sql('ALTER ROLE queen_web SET synchronous_commit = off');
($code, $out, $err) = run_cases('push-single');
isnt($code, 0, 'a role without durability');
like($err, qr/synchronous_commit=off.*not measured/, 'is refused');
$queen->sql('ALTER ROLE queen_web RESET synchronous_commit');

# An error fails the case: the front end may not push.
$queen->sql('REVOKE EXECUTE ON FUNCTION queen.log_push FROM queen_frontend');
($code, $out) = run_cases('push-single');
is($code, 1, 'errors fail the run');
like($out, qr/^FAILED: wrong answers: /m, 'and are named');
$queen->finish;

# Messages in the queues of push-single and drain, by the database and by the report; what warmed up
# is not counted.
sub stored_by_cases
{
    return $queen->sql(q{SELECT sum(p.last_offset + 1) FROM queen.log_partitions AS p
        JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name ~ '^bench-.*-(single|drain)-[0-9]+$'});
}

sub counted_by_cases
{
    my $drain = $json->decode(slurp_file("$results/drain.json"));
    is_deeply([ map { $_->{drain}{acknowledged} } @{ $drain->{rounds} } ],
        [ map { $_->{push}{pushed} } @{ $drain->{rounds} } ], 'a drain gets what was pushed');
    return sum(map({ $_->{queen}{pushed} } @rounds), map { $_->{push}{pushed} } @{ $drain->{rounds} });
}
