# V-60: a front end that is killed in the middle of POST /transaction leaves all of the transaction or
# nothing, and the client that repeats it never gets its messages stored twice.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use IO::Select;
use JSON::PP ();
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('txnkill');
my $web = $queen->start_frontend(args => [ '--threads', 2 ]);

# A transaction as a relay makes it: one message is done, its output is pushed to two partitions.
sub bundle
{
    my ($message) = @_;
    my $id = $message->{transactionId};
    return {
        operations => [
            (map { { type => 'push', queue => 'out', partition => $_, transactionId => $id, payload => $id } } qw(a b)),
            { type => 'ack', transactionId => $id, partitionId => $message->{partitionId}, status => 'completed' }
        ],
        requiredLeases => [ $message->{leaseId} ]
    };
}

# How often the outputs of a message are stored, and whether it is acknowledged: "0 0 f" or "1 1 t".
my $state_of_all = <<'SQL';
SELECT i.name, count(f.partition) FILTER (WHERE f.partition = 'a'), count(f.partition) FILTER (WHERE f.partition = 'b'), c.committed = 0
  FROM queen.log_partitions AS i
  JOIN queen.queues AS q ON q.id = i.queue_id AND q.name = 'in'
  JOIN queen.log_consumers AS c ON c.partition_id = i.id
  LEFT JOIN (SELECT p.name AS partition, (queen.log_frame(s.blob, n)).transaction_id
               FROM queen.queues AS q
               JOIN queen.log_partitions AS p ON p.queue_id = q.id
               JOIN queen.log_segments AS s ON s.partition_id = p.id,
                    generate_series(0, (s.end_offset - s.base_offset)::int) AS n
              WHERE q.name = 'out') AS f ON f.transaction_id = i.name
 GROUP BY i.id, c.partition_id, c.consumer_group
SQL
sub states { return map { my ($id, @state) = split /\|/; ($id => "@state") } split /\n/, $queen->sql($state_of_all); }

# Pushes a message to each of so many partitions, and takes all of them.
sub take
{
    my ($prefix, $n) = @_;
    my $answer = $web->push(map { { queue => 'in', partition => "$prefix-$_", transactionId => "$prefix-$_", payload => 0 } } 1 .. $n);
    my @messages = map { $web->pop('in', partition => "$prefix-$_", leaseSeconds => 600) } 1 .. $n;
    die "$prefix: only " . @messages . ' delivered, pushed: ' . JSON::PP->new->encode($answer) unless @messages == $n;
    return @messages;
}

# What there is to see when nothing happens any more.
sub standstill
{
    my @answered = map { IO::Select->new($_->{socket})->can_read(0) ? $_->receive : () } @_;
    return join "\n", $web->log, @answered . ' are answered', (map { "$_->{status} $_->{body}" } @answered[ 0 .. ($#answered > 2 ? 2 : $#answered) ]),
      $queen->sql(q{SELECT pid, backend_type, state, wait_event_type, wait_event, now() - query_start, left(query, 80) FROM pg_stat_activity WHERE state <> 'idle'});
}

sub kill_and_start { $web->kill9; $web->start; $web->wait_healthy; return; }
sub idle
{
    my $running = q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'queen_web' AND query LIKE '%log_transaction%' AND state <> 'idle'};
    return eval { wait_until(sub { !$queen->sql($running) }, 'no transaction runs') } // die $@ . standstill();
}

# Repeats what was not answered: what is there is refused, what is not is done.
sub repeat
{
    my ($name, @messages) = @_;
    my %before = states();
    my (%refused, @wrong);
    for my $message (@messages)
    {
        my $answer = $web->post('/api/v1/transaction', bundle($message))->{json};
        my $committed = $before{ $message->{transactionId} } eq '1 1 t';
        push @wrong, "$message->{transactionId}: $before{ $message->{transactionId} }, then " . ($answer->{reason} // 'success')
          if $committed ? ($answer->{reason} // '') ne 'duplicate' : !$answer->{success};
    }
    is_deeply(\@wrong, [], "$name: the repeated transaction is a duplicate when it was done, and is done when not");
    my %after = states();
    is_deeply([ grep { $after{ $_->{transactionId} } ne '1 1 t' } @messages ], [], "$name: in the end it is done, once");
    return;
}

# It waits for a row in the database when the front end dies. The database does not know, and commits.
{
    my ($message) = take('held', 1);
    my $holder = $queen->node->background_psql('postgres');
    $holder->query_safe("BEGIN; SELECT FROM queen.log_consumers WHERE worker_id = '$message->{leaseId}' FOR UPDATE");
    my $connection = $web->connect;
    $connection->send('POST', '/api/v1/transaction', bundle($message));
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%log_transaction%'}) }, 'it waits in the middle');
    kill_and_start();
    is($connection->receive, undef, 'held: no answer');
    is_deeply({ states() }, { 'held-1' => '0 0 f' }, 'held: nothing of it is visible');
    $holder->query_safe('COMMIT');
    $holder->quit;
    idle();
    is_deeply({ states() }, { 'held-1' => '1 1 t' }, 'held: all of it is, when the row is free');
    repeat('held', $message);
}

# The front end has a part of the request only.
{
    my ($message) = take('part', 1);
    my $body = JSON::PP->new->encode(bundle($message));
    my $connection = $web->connect;
    $connection->write("POST /api/v1/transaction HTTP/1.1\r\nHost: x\r\nContent-Length: " . length($body) . "\r\n\r\n" . substr $body, 0, -1);
    kill_and_start();
    is({ states() }->{'part-1'}, '0 0 f', 'part: half a request does nothing');
    repeat('part', $message);
}

# Many at once, killed wherever they are.
my %outcomes;    # depend on the speed of the machine
for my $round (1 .. 6)
{
    my @messages = take("r$round", 40);
    my @connections = map { $web->connect } @messages;
    my $begun = $queen->sql(q{SELECT last_offset + 1 FROM queen.log_partitions WHERE name = 'a'});
    $connections[$_]->send('POST', '/api/v1/transaction', bundle($messages[$_])) for 0 .. $#messages;
    # Nothing to wait for in the first round; in the others, until some are committed.
    eval { wait_until(sub { $queen->sql(q{SELECT last_offset + 1 FROM queen.log_partitions WHERE name = 'a'}) >= $begun + $round - 1 }, 'some are committed') }
      or die $@ . standstill(@connections);
    $web->kill9;
    my @answers = map { scalar eval { $_->receive } } @connections;
    idle();
    $web->start;
    $web->wait_healthy;
    my %states = states();
    is_deeply([ grep { !/^(?:0 0 f|1 1 t)$/ } values %states ], [], "round $round: all or nothing");
    is_deeply([ map { $_->{transactionId} } grep { $states{ $_->{transactionId} } ne '1 1 t' } map { $answers[$_] && $answers[$_]{json}{success} ? $messages[$_] : () } 0 .. $#messages ],
        [], "round $round: what was answered is there");
    $outcomes{ $states{ $_->{transactionId} } }++ for @messages;
    repeat("round $round", @messages);
}
note join ', ', map { "$_: $outcomes{$_}" } sort keys %outcomes;

QueenHistory::check_tables($queen, 'at the end');
$queen->finish;
