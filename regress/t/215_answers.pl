# What an answer may hold is counted before compression, and answers that nobody reads are bounded.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenTest 'wait_until';
use Test::More;

my $queen = QueenTest->new('answers');
my $web = $queen->start_frontend(args => [ '--threads', 1, '--max-buffered-bytes', 64 << 20 ]);
my $mib = 1 << 20;
my $answer = 32;    # MiB, and the last segment is taken whole
my $segment = 8;

# A megabyte of the same letter is 100 bytes or so when it is stored.
my $payload = 'x' x ($mib - 100);
for my $first (map { $_ * 16 } 0 .. 5)
{
    my $items = $web->push(map { { queue => 'wide', payload => $payload } } 1 .. 16);
    is(scalar(grep { $_->{status} eq 'queued' } @$items), 16, "messages from $first");
}
cmp_ok($queen->sql('SELECT sum(bytes) FROM queen.log_partitions'), '<', $mib, 'they are stored in less than a megabyte');

my (@counts, $total);
while ((my $popped = $web->get('/api/v1/pop/queue/wide?batch=10000&autoAck=true'))->{status} == 200)
{
    push @counts, scalar(() = $popped->{body} =~ /"transactionId"/g);
    $total += $counts[-1];
}
is($total, 96, 'all of them come');
pop @counts;
cmp_ok($_, '>=', $answer - 1, 'an answer is filled') for @counts;
cmp_ok($_, '<=', $answer + $segment, 'and ends with the segment that fills it') for @counts;

# Two such answers that are not read are as much as this front end holds.
my @readers = map { $web->connect } 1, 2;
for my $i (0, 1)
{
    my $before = $web->get('/metrics')->{json}{queen}{popMessages};
    $readers[$i]->send('GET', "/api/v1/pop/queue/wide?batch=10000&consumerGroup=g$i&subscriptionMode=all");
    wait_until(sub { $web->get('/metrics')->{json}{queen}{popMessages} > $before }, "answer $i is there");
}
my $refused = $web->get('/api/v1/pop/queue/wide?batch=1&consumerGroup=g2&subscriptionMode=all');
is($refused->{status}, 503, 'a pop is refused');
is($refused->{json}{error}, 'too many answers are still being read', 'with the reason');
is($queen->sql(q{SELECT count(*) FROM queen.log_consumers WHERE consumer_group = 'g2' AND worker_id IS NOT NULL}), 0, 'and has leased nothing');
is($web->post('/api/v1/push', { items => [ { queue => 'wide', payload => 1 } ] })->{status}, 503, 'so is a push');

# Whoever reads, or leaves, makes room.
is($readers[0]->receive->{status}, 200, 'one answer is read');
is($web->get('/api/v1/pop/queue/wide?batch=1&consumerGroup=g2&subscriptionMode=all')->{status}, 200, 'a pop is answered again');
$readers[1]->close;
wait_until(sub { $queen->sql('SELECT count(*) FROM queen.log_consumers WHERE worker_id IS NOT NULL') == 2 }, 'the lease of the other is given back');
is($web->get('/api/v1/pop/queue/wide?batch=1&consumerGroup=g1')->{status}, 200, 'to be popped again');
$queen->finish;
