# A segment whose blob is damaged is filed as a dead letter and passed; its neighbours, and all
# other partitions, are delivered. Property V-93.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use QueenTest;
use Test::More;

# What is done to a blob. The bombs are zstd frames with a long way to go: one claims 10 GiB, one
# holds 70 MiB of zeros and says so.
my $bomb = join '', '28b52ffd', 'e0', unpack('H*', pack('Q<', 10 << 30)), '020010' x 100;
my $zeros = join '', '28b52ffd', 'a0', unpack('H*', pack('L<', 70 << 20)), '02001000' x 559, '03001000';
my %damage = (
    flip => 'set_byte(blob, length(blob) / 2, get_byte(blob, length(blob) / 2) # 16)',
    magic => 'set_byte(blob, 0, 0)',
    truncation => 'substring(blob, 1, length(blob) - 3)',
    nothing => q{''},
    text => q{'no zstd'},
    swap => q{(SELECT other.blob FROM queen.log_segments AS other
                 JOIN queen.log_partitions AS p ON p.id = other.partition_id
                WHERE p.name = 'other')},
    bomb => "'\\x$bomb'",
    zeros => "'\\x$zeros'",
);
my %position = (head => [ 0, 1 ], middle => [ 2, 4 ], tail => [ 5, 6 ]);    # offsets of the segments
my @partitions = map { my $kind = $_; map { "$kind-$_" } sort keys %position } sort keys %damage;

my $queen = QueenTest->new('corrupt');
my $web = $queen->start_frontend(args => [ '--threads', 1 ]);

sub push_ids
{
    my ($partition, @ids) = @_;
    $web->push(map { { queue => 'q', partition => $partition, transactionId => "$_", payload => {} } } @ids);
    return;
}

for my $partition (@partitions, 'sound')
{
    push_ids($partition, 0, 1);
    push_ids($partition, 2, 3, 4);
    push_ids($partition, 5, 6);
}
push_ids('other', 1 .. 9);
for my $partition (@partitions)
{
    my ($kind, $position) = split /-/, $partition;
    $queen->sql("UPDATE queen.log_segments SET blob = $damage{$kind} WHERE base_offset = $position{$position}[0]"
          . " AND partition_id = (SELECT id FROM queen.log_partitions WHERE name = '$partition')");
}

# Pops until there is nothing more; returns the ids delivered, by partition.
sub consume
{
    my ($group, %parameters) = @_;
    my %delivered;
    while (my @messages = $web->pop('q', consumerGroup => $group, subscriptionMode => 'all', %parameters))
    {
        push @{ $delivered{ $_->{partition} } }, $_->{transactionId} for @messages;
        $web->ack('completed', @messages) unless ($parameters{autoAck} // '') eq 'true';
    }
    return %delivered;
}

my @all = (0 .. 6);
my %expected = (sound => \@all, other => [ 1 .. 9 ]);
for my $partition (@partitions)
{
    my ($first, $last) = @{ $position{ $partition =~ s/.*-//r } };
    $expected{$partition} = [ grep { $_ < $first || $_ > $last } @all ];
}

my %pops = (
    leased => {},
    waiting => { wait => 'true', timeout => 40 },
    auto => { autoAck => 'true' },
    'auto-waiting' => { autoAck => 'true', wait => 'true', timeout => 40 },
);
for my $group (sort keys %pops)
{
    my %delivered = map { consume($group, partition => $_, %{ $pops{$group} }) } sort keys %expected;
    is_deeply(\%delivered, \%expected, "V-93: $group pops deliver the neighbours");
}
my %all_at_once = consume('wildcard', partitions => 0, batch => 1000, wait => 'true', timeout => 40);
is_deeply(\%all_at_once, \%expected, 'V-93: a pop over all partitions delivers the neighbours');

my @groups = (sort(keys %pops), 'wildcard');
for my $group (@groups)
{
    my $letters = $queen->sql(<<"SQL");
SELECT p.name, d."offset", d.payload IS NULL, d.error ~ ('^corrupt segment ' || s.base_offset || '\\.\\.' || s.end_offset || ' of partition ' || p.id || ': .')
  FROM queen.log_dlq AS d
  JOIN queen.log_partitions AS p ON p.id = d.partition_id
  LEFT JOIN queen.log_segments AS s ON s.partition_id = d.partition_id AND s.base_offset = d."offset"
 WHERE d.consumer_group = '$group' ORDER BY p.name COLLATE "C"
SQL
    my @wanted = map { "$_|$position{ s/.*-//r }[0]|t|t" } @partitions;
    is($letters, join("\n", @wanted), "V-93: one dead letter per range names partition, base, end and cause ($group)");
}
is($queen->sql(<<'SQL'), 0, 'V-93: every cursor is at the end of its partition, and nothing is leased');
SELECT count(*) FROM queen.log_partitions AS p JOIN queen.log_consumers AS c ON c.partition_id = p.id
 WHERE (c.committed, c.total_consumed) <> (p.last_offset, p.last_offset + 1) OR c.worker_id IS NOT NULL
SQL
is($queen->sql('SELECT count(*) FROM queen.log_segments'), 3 * (@partitions + 1) + 1, 'the segments stay');

my $counted = $web->get('/metrics')->{json}{queen}{corruptSegments};
cmp_ok($counted, '>=', @groups * @partitions, 'V-93: they are counted');
my @lines = $web->log =~ /segment does not decode/g;
is(@lines, $counted, 'V-93: and each is a line in the log');
my $warnings = () = slurp_file($queen->node->logfile) =~ /WARNING:  corrupt segment/g;
cmp_ok($warnings, '>=', @groups * @partitions, 'V-93: the server logs a warning for each');

my ($peak) = slurp_file('/proc/' . $web->pid . '/status') =~ /^VmHWM:\s+(\d+)/m;
note "$peak KiB at most";
cmp_ok($peak, '<', 256 * 1024, 'V-93: the bombs did not take much memory')
  unless slurp_file('/proc/' . $web->pid . '/maps') =~ /libasan/;

push_ids($_, 'next') for @partitions;
my %next = consume('wildcard', partitions => 0, batch => 1000);
is_deeply(\%next, { map { $_ => ['next'] } @partitions }, 'the partitions go on');
$queen->finish;
