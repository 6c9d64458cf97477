# An application keeps a transaction open that has pushed and popped. Whoever needs its rows waits
# for it or is told to come again; nobody else notices.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP;
use List::Util 'max';
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;
use Time::HiRes 'time';

my $queen = QueenTest->new('opentx');
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);
# In this one whoever is kept waiting by the transaction waits for its end, and longer than the test.
my $patient = $queen->start_frontend(args => [ '--threads', 1, '--lock-timeout', 600000, '--statement-timeout', 1200000 ]);
my $partitions = 16;
my @held = qw(p0 p1 p2);
my %held = map { $_ => 1 } @held;

sub offsets
{
    my %offsets = map { split /\|/ } split /\n/,
      $queen->sql(q{SELECT p.name, p.last_offset FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'q'});
    return \%offsets;
}

# Everything exists, and a group has leases.
$queen->sql(q{SELECT queen.log_provision(array_fill('00000000-0000-0000-0000-000000000001'::uuid, ARRAY[16]),
                                         array_fill('q'::text, ARRAY[16]), ARRAY(SELECT 'p' || i FROM generate_series(0, 15) AS i))});
my @leased = map { $web->push({ queue => 'leased', partition => "l$_", transactionId => "l$_", payload => $_ });
    $web->pop('leased', partition => "l$_", leaseSeconds => 3600) } 0 .. 3;
is(scalar @leased, 4, 'four leases');

my $session = $queen->node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT queen.push_many('q', '{1,2,3}', '{p0,p1,p2}', '{sql0-1,sql1-1,sql2-1}')});
my $began = time;
my $load = QueenHistory::start($queen, queue => 'q', ports => [ $web->port ], producers => 64, partitions => $partitions,
    batch => 2, repeat => 3, seconds => 66, seed => 7);
$session->query_safe(q{SELECT queen.push('q', '4', 'p0', 'sql0-2'); SELECT queen.push('newborn', '1', 'p', 'n1'); SELECT queen.push('q', '1', 'born', 'born-1')});

$session->query_safe("SELECT queen.renew('$_->{leaseId}')") for @leased[ 0 .. 2 ];

# Somebody wants the names that the transaction has created, the partitions it has pushed to, and
# the cursors that it holds.
sub later
{
    my ($path, $body) = @_;
    my $connection = $patient->connect;
    $connection->send('POST', $path, $body);
    return $connection;
}
my @pushes = map { later('/api/v1/push', { items => [ { queue => $_->[0], partition => $_->[1], transactionId => $_->[2], payload => 1 } ] }) }
  [qw(newborn p x-1)], [qw(q born other3-1)], [qw(q p0 other0-1)], [qw(q p1 other1-1)], [qw(q p2 other2-1)];
my @acks = map { later('/api/v1/ack', { %$_{qw(transactionId partitionId leaseId)} }) } @leased[ 0 .. 2 ];
wait_until(sub { $patient->get('/metrics')->{json}{queen}{pushRequests} == @pushes }, 'they have arrived');

# The others go on for half a minute: old partitions, new ones, new queues, pops.
my $round = 0;
my @failed;
my $slowest = 0;
while (time - $began < 61)
{
    my $before = offsets();
    $round++;
    my $start = time;
    my $answer = $patient->post('/api/v1/push', { items => [ { queue => "new-$round", partition => 'p', payload => 1 }, { queue => 'many', partition => "n-$round", payload => 1 } ] });
    push @failed, "round $round: " . $answer->{body} if $answer->{status} != 201 || grep { $_->{status} ne 'queued' } @{ $answer->{json} };
    $slowest = max($slowest, time - $start);
    wait_until(
        sub {
            my $now = offsets();
            return !grep { !$held{$_} && $now->{$_} <= $before->{$_} } keys %$now;
        },
        'messages arrive in all other partitions');
    push @failed, "round $round: no pop" unless $patient->pop("new-$round", autoAck => 'true') == 1;
    is($patient->ack('completed', $leased[3])->[0]{success}, JSON::PP::true, 'another lease is acknowledged') if $round == 1;
}
note "$round rounds, slowest push of new names $slowest s";
cmp_ok($round, '>=', 3, 'the others go on while the transaction is open');
is(scalar(grep { $_->readable } @pushes, @acks), 0, 'who needs its rows waits');
is_deeply(\@failed, [], 'new queues and partitions are created, and popped');
my $offsets = offsets();
is_deeply([ @$offsets{@held} ], [ -1, -1, -1 ], 'nothing arrives in its partitions');
$session->query_safe('COMMIT');
$load->finish;
is($_->receive->{json}[0]{status}, 'queued', 'a push that waited is stored') for @pushes;
is($_->receive->{json}[0]{success}, JSON::PP::true, 'an acknowledgement that waited is done') for @acks;

my @strangers = grep { !$held{ $_->{partition} } } $load->entries('push');
cmp_ok(scalar @strangers, '>', 1000, 'pushes to the other partitions');
is(scalar(grep { ($_->{status} // 0) != 201 || grep { $_ eq 'failed' } @{ $_->{statuses} || [] } } @strangers), 0, 'none of them fails');
note 'slowest push to another partition ' . max(map { $_->{complete} - $_->{invoke} } @strangers) / 1e6 . ' s';

# What did not come from the load.
push @{ $load->{push} }, { partition => $_->[0], ids => $_->[1], statuses => [ map { 'queued' } @{ $_->[1] } ] }
  for [ p0 => [qw(sql0-1 sql0-2 other0-1)] ], [ p1 => [qw(sql1-1 other1-1)] ], [ p2 => [qw(sql2-1 other2-1)] ], [ born => [qw(born-1 other3-1)] ];
my $log = $load->log;
is(join(',', @{ $log->{p0} }[ 0, 1 ]), 'sql0-1,sql0-2', 'the messages of the transaction come first, in their order');
is($log->{"p$_"}[0], "sql$_-1", "p$_ too") for 1, 2;
cmp_ok(scalar @{ $log->{$_} }, '>', 10, "$_: then those who waited") for @held;
$load->check_log('after the commit');
QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
