# Everything at once: pushes, pops, acks, transactions, seeks, deletions of groups and of queues, over
# HTTP and SQL, while backends are terminated and killed in random places. Requests may fail then, but
# never with an internal error, and what is in the tables afterwards agrees with the rules.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP ();
use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = 8;
my $queen = QueenTest->new('everything', conf => "restart_after_crash = on\nqueen.lease_expiry_interval = 100ms\n");
my @webs = map { $queen->start_frontend(args => [ '--threads', 2 ]) } 1 .. 2;
my $node = $queen->node;
my $dir = PostgreSQL::Test::Utils::tempdir;
my ($true) = JSON::PP::true();

# One request on a new connection; undef without an answer. Internal errors are what must not be.
my $notes;
sub ask
{
    my ($method, $path, $body) = @_;
    my ($web) = shuffle @webs;
    my $response = eval { $web->request($method, $path, $body) } or return;
    print {$notes} "$method $path: $response->{status} $response->{body}\n" if $response->{status} >= 500 && $response->{status} != 503;
    print {$notes} "done $method\n" if $response->{status} < 300;
    return $response->{status} < 300 ? $response->{json} : undef;
}

sub one_of { return $_[ rand @_ ]; }
sub queue { return one_of(qw(a b c)); }
sub partition { return 'p' . int rand 6; }
sub group { return one_of(qw(g1 g2)); }
sub id { return 'i' . int rand 100_000; }
sub item { return { queue => queue(), partition => partition(), transactionId => id(), payload => { n => rand } }; }
sub pop_some { my $answer = ask('GET', '/api/v1/pop/queue/' . queue() . '?consumerGroup=' . group() . '&subscriptionMode=all&batch=20&partitions=3&leaseSeconds=1'); return $answer ? @{ $answer->{messages} } : (); }
sub ack_of { my ($message, $status) = @_; return { status => $status, map { $_ => $message->{$_} } qw(transactionId partitionId leaseId consumerGroup) }; }

# What the processes do, over and over.
my %actors = (
    'push 1' => sub { ask('POST', '/api/v1/push', { items => [ map { item() } 1 .. 10 ] }) },
    'ack 1' => sub {
        my @messages = pop_some() or return;
        ask('POST', '/api/v1/ack/batch', { consumerGroup => $messages[0]{consumerGroup}, acknowledgments => [ map { ack_of($_, one_of(qw(completed completed completed failed retry dlq))) } @messages ] });
    },
    'relay' => sub {
        my @messages = pop_some() or return;
        my @operations = map { ({ type => 'ack', %{ ack_of($_, 'completed') } }, { type => 'push', queue => queue(), partition => partition(), transactionId => "$_->{transactionId}'", payload => 0 }) } @messages;
        ask('POST', '/api/v1/transaction', { operations => \@operations, requiredLeases => [ $messages[0]{leaseId} ] });
    },
    'seek' => sub {
        my $path = '/api/v1/consumer-groups/' . group() . '/queues/' . queue();
        $path .= '/partitions/' . partition() if rand() < 0.5;
        ask('POST', "$path/seek", one_of({ toEnd => $true }, { beginning => $true }));
        sleep 0.02;
    },
    'delete group' => sub { ask('DELETE', '/api/v1/consumer-groups/' . group() . one_of('', '/queues/' . queue())); sleep 0.1; },
    'delete queue' => sub { ask('DELETE', '/api/v1/resources/queues/' . queue()); sleep 0.3; },
    'extend' => sub { my @messages = pop_some() or return; ask('POST', "/api/v1/lease/$messages[0]{leaseId}/extend", { seconds => 2 }); },
    'dlq' => sub {
        my $letters = ask('GET', '/api/v1/dlq?limit=5') or return;
        ask('POST', "/api/v1/dlq/$_->{id}/replay", {}) for @{ $letters->{messages} };
        ask('DELETE', '/api/v1/dlq?queue=' . queue());
    },
    'reports' => sub { ask('GET', "/api/v1/$_") for qw(resources/queues resources/overview consumer-groups status messages?limit=20); });
$actors{'push 2'} = $actors{'push 1'};
$actors{"ack $_"} = $actors{'ack 1'} for 2 .. 3;

my @pids;
for my $name (sort keys %actors)
{
    my $pid = fork // die "fork: $!";
    if (!$pid)
    {
        srand(length($name) + $$);
        open $notes, '>>', "$dir/$name" or POSIX::_exit(1);
        for (my $end = time + $seconds; time < $end;) { eval { $actors{$name}->(); 1 } or print {$notes} "$name: $@\n"; }
        close $notes;
        POSIX::_exit(0);
    }
    push @pids, $pid;
}
# In SQL: transactions that pop, ack and push, some of which are rolled back.
append_to_file("$dir/sql", <<'SQL');
\set q random(0, 2)
\set p random(0, 5)
\set n random(1, 100000)
BEGIN;
SELECT queen.ack(m.partition_id, m.transaction_id, m.lease_id, m.consumer_group)
  FROM queen.pop(substr('abc', 1 + :q, 1), 'g1', batch => 5, partitions => 2, subscription_mode => 'all') AS m
 ORDER BY m.message_offset DESC LIMIT 1;
SELECT queen.push(substr('abc', 1 + :q, 1), '{}', 'p' || :p, 's' || :n);
\if :q
COMMIT;
\else
ROLLBACK;
\endif
SQL

sub bench
{
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    open STDOUT, '>', '/dev/null';
    open STDERR, '>&', \*STDOUT;
    exec 'pgbench', '--no-vacuum', '--client=2', "--time=$seconds", '--file', "$dir/sql", '--host', $node->host, '--port', $node->port, 'postgres' or POSIX::_exit(127);
}

my $faults = 0;
for (my $end = time + $seconds; time < $end; $faults++)
{
    my $pid = bench();
    sleep rand 0.5;
    my $victims = one_of(q{usename = 'queen_web'}, q{application_name = 'pgbench'}, q{backend_type ~ '^queen'}, q{state = 'active' AND pid <> pg_backend_pid()});
    eval { $queen->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $victims") };
    if ($faults % 6 == 5 && defined(my $victim = eval { $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'queen_web' ORDER BY state, random() LIMIT 1}) }))
    {
        kill 'KILL', $victim if $victim;
    }
    kill 'TERM', $pid;
    waitpid $pid, 0;
}
waitpid $_, 0 for @pids;

my (%done, @internal);
for my $line (map { split /\n/, slurp_file("$dir/$_") } sort keys %actors)
{
    if ($line =~ /^done (\w+)/) { $done{$1}++; }
    else { push @internal, $line; }
}
note 'faults: ', $faults, ', requests: ', join ' ', map { "$_ $done{$_}" } sort keys %done;
is_deeply([ @internal[ 0 .. ($#internal > 9 ? 9 : $#internal) ] ], [], 'no internal error');
cmp_ok($done{$_} // 0, '>', 0, "$_ requests went through") for qw(GET POST DELETE);
ok($_->running, "$_->{name} has survived") for @webs;

wait_until(sub { eval { $queen->sql('SELECT 1') } }, 'the server is back');
$queen->sql('CALL queen.maintain()');
wait_until(sub { $queen->sql('SELECT queen.log_drain_step(10000)') == 0 && $queen->sql('SELECT count(*) FROM queen.queues WHERE deleted_at IS NOT NULL') == 0 }, 'deleted queues are drained');
QueenHistory::check_tables($queen, 'afterwards');
is($queen->sql("SELECT count(*) FROM queen.$_ AS t WHERE NOT EXISTS (SELECT FROM queen.log_partitions AS p WHERE p.id = t.partition_id)"), 0, "$_ has no row without a partition")
  for qw(log_txns log_dlq log_due log_consumers);
is($queen->sql(
        q{SELECT count(*) FROM queen.log_consumers AS c JOIN queen.log_partitions AS p ON p.id = c.partition_id
           WHERE num_nonnulls(batch_end, worker_id, lease_expires_at) NOT IN (0, 3) OR committed < -1}),
    0, 'a lease is whole or not there');
my @errors = grep { !/terminating|canceling|deadlock|could not serialize|is not accepted|lease|already committed|unresolved|consumer not found|does not exist|is being deleted|recovery mode|starting up|connection|closed/ } slurp_file($node->logfile) =~ /(?:ERROR|WARNING|FATAL|PANIC): .*/g;
is_deeply([ @errors[ 0 .. ($#errors > 9 ? 9 : $#errors) ] ], [], 'the server logs nothing but what was done to it');

# And it all still works.
$webs[0]->push({ queue => 'after', payload => $_ }) for 1 .. 3;
is(scalar(() = $webs[1]->pop('after', batch => 10, autoAck => 'true')), 3, 'and goes on');
$queen->finish;
