# The clock of the database host steps back by an hour: neither order nor delivery suffers.
# Property V-94.
#
# The clock itself cannot be moved here, so everything that was stamped before is moved an hour
# ahead, which is how a clock that stepped back finds it.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenHistory;
use QueenTest 'wait_until';
use Test::More;

# The watermark bounds searches of the tables, which work lists make rare.
my $queen = QueenTest->new('clock', conf => "queen.use_worklists = off\n");
my $web = $queen->start_frontend;

sub push_ids
{
    my ($partition, @ids) = @_;
    my $answer = $web->push(map { { queue => 'q', partition => $partition, transactionId => $_, payload => {} } } @ids);
    return join ',', map { $_->{status} } @$answer;
}

sub ids { return join ',', map { $_->{transactionId} } @_; }

sub step_back
{
    my $columns = $queen->sql(<<'SQL');
SELECT format('UPDATE queen.%I SET %s', relname,
              string_agg(format('%1$I = %1$I + interval ''1 hour''', attname), ', '))
  FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
 WHERE relnamespace = 'queen'::regnamespace AND relkind = 'r' AND atttypid = 'timestamptz'::regtype
   AND attnum > 0 AND NOT attisdropped
 GROUP BY relname
SQL
    $queen->sql($_) for split /\n/, $columns;
    return;
}

push_ids($_, 'a1', 'a2') for qw(busy leased);
$web->pop('q', consumerGroup => 'late', subscriptionMode => 'new');
my @old = $web->pop('q', consumerGroup => 'g', subscriptionMode => 'all', partitions => 0);
$web->ack('completed', @old);
push_ids('leased', 'a3');
my @leased = $web->pop('q', consumerGroup => 'g', leaseSeconds => 600);
is(ids(@leased), 'a3', 'a lease from before the step');

# Two empty searches leave a watermark, which is made fresh.
is(scalar(() = $web->pop('q', consumerGroup => 'g')), 0, 'nothing more') for 1 .. 2;
is($queen->sql(q{UPDATE queen.consumer_watermarks SET last_empty_scan_at = now(), updated_at = now() WHERE consumer_group = 'g' RETURNING 1}),
    1, 'the group has a watermark');

step_back();

is(push_ids('busy', 'a1', 'b1'), 'duplicate,queued', 'ids from before the step are still known');
is(push_ids('busy', 'b1', 'b2'), 'duplicate,queued', 'and those from after it');
is(push_ids('fresh', 'c1'), 'queued', 'a partition that is created after the step');
is($queen->sql(q{SELECT max(s.created_at) > now() + interval '59 minutes' FROM queen.log_segments AS s JOIN queen.log_partitions AS p ON p.id = s.partition_id WHERE p.name = 'busy'}),
    't', 'V-94: stamps stay ahead until the clock catches up');

my %got;
push @{ $got{ $_->{partition} } }, $_->{transactionId} for $web->pop('q', consumerGroup => 'g', partitions => 0);
is_deeply(\%got, { busy => [ 'b1', 'b2' ], fresh => ['c1'] }, 'V-94: an existing group finds old and new partitions at once');
is($web->ack('completed', @leased)->[0]{success}, JSON::PP::true, 'the lease from before the step is honoured');

%got = ();
push @{ $got{ $_->{partition} } }, $_->{transactionId} for $web->pop('q', consumerGroup => 'late', partitions => 0);
is_deeply(\%got, { busy => [ 'b1', 'b2' ], leased => ['a3'], fresh => ['c1'] },
    'V-94: a group of mode new misses nothing');
%got = ();
push @{ $got{ $_->{partition} } }, $_->{transactionId}
  for $web->pop('q', consumerGroup => 'first', subscriptionMode => 'all', partitions => 0);
is_deeply(\%got, { busy => [qw(a1 a2 b1 b2)], leased => [qw(a1 a2 a3)], fresh => ['c1'] },
    'V-94: a new group gets all of it in order');

push_ids('unseen', 'e1');
is(ids($web->pop('q', consumerGroup => 'g', autoAck => 'true')), 'e1', 'another partition is created and found');
is(scalar(() = $web->pop('q', consumerGroup => 'g')), 0, 'nothing more');
is($queen->sql(q{SELECT updated_at <= now(), last_empty_scan_at = 'epoch' FROM queen.consumer_watermarks WHERE consumer_group = 'g'}),
    't|t', 'the watermark has been put back');

# A parked pop is woken as ever.
my $parked = $web->connect;
$parked->send('GET', '/api/v1/pop/queue/q?consumerGroup=g&wait=true&timeout=60000');
wait_until(sub { $web->get('/metrics')->{json}{queen}{parkedPops} == 1 }, 'a pop is parked');
push_ids('newer', 'd1');
is($parked->receive->{json}{messages}[0]{transactionId}, 'd1', 'a parked pop gets what is pushed');

QueenHistory::check_tables($queen, 'after the step');
$queen->finish;
