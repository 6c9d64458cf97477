# Messages that arrive together travel together: how many share a transaction is counted from
# the rows they left.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use QueenHistory;
use QueenTest;
use Test::More;

my $queen = QueenTest->new('fusion');
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);

sub ratio
{
    my ($queue, $what) = @_;
    return $queen->sql(<<"SQL");
SELECT round(sum($what)::numeric / count(DISTINCT s.xmin::text), 1)
  FROM queen.queues AS q
  JOIN queen.log_partitions AS p ON p.queue_id = q.id
  JOIN queen.log_segments AS s ON s.partition_id = p.id
 WHERE q.name = '$queue'
SQL
}

my %load = (ports => [ $web->port ], producers => 64, count => 150);

# Property V-08: one segment of a partition at a time is in flight, so the others gather.
my $one = QueenHistory::run($queen, %load, queue => 'one');
is($one->totals->{pushed}, 64 * 150, 'all messages to one partition are stored');
my $messages = ratio('one', 's.end_offset - s.base_offset + 1');
note "$messages messages per transaction";
cmp_ok($messages, '>=', 16, 'V-08: 64 clients on one partition share transactions');
$one->check_log('one partition');

my $many = QueenHistory::run($queen, %load, queue => 'many', partitions => 64);
is($many->totals->{pushed}, 64 * 150, 'all messages to 64 partitions are stored');
my $segments = ratio('many', '1');
note "$segments segments per transaction";
cmp_ok($segments, '>=', 16, 'V-08: 64 clients on 64 partitions share transactions');
$many->check_log('64 partitions');

QueenHistory::check_tables($queen, 'after the load');
$queen->finish;
