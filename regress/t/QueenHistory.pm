# Runs the load generator, and judges its history against what the tables hold.
#
#   my $load = QueenHistory::start($queen, queue => 'q', ports => [ $web->port ], producers => 8);
#   ...    # faults
#   my $history = $load->finish;
#   $history->check_log;        # what was pushed is stored, once, in order
#   $history->check_groups;     # what was delivered and acknowledged
#   QueenHistory::check_tables($queen);
#
# A request is an interval, from its start to its answer; what it did happened at one moment in
# it. Two requests are in order only when one was answered before the other began. A request
# whose outcome is unknown may have happened or not, and at any time after its start.
package QueenHistory;

use strict;
use warnings;
use IPC::Run;
use JSON::PP;
use List::Util qw(max min);
use PostgreSQL::Test::Utils;
use Test::More;

my $json = JSON::PP->new->utf8;
my $runs = 0;

# Starts the generator; an option's name is that of its flag, with _ for -.
sub start
{
    my ($queen, %options) = @_;
    my $file = PostgreSQL::Test::Utils::tempdir . '/history' . $runs++;
    my @command = ($ENV{QUEEN_LOAD}, '--history', $file, '--ports', join ',', @{ delete $options{ports} });
    my %self = (queen => $queen, queue => $options{queue}, file => $file, summary => '');
    for my $name (sort keys %options)
    {
        push @command, '--' . $name =~ tr/_/-/r;
        push @command, $options{$name} unless $name =~ /^(?:roam|auto_ack|until_empty)$/;
    }
    $self{process} = IPC::Run::start(\@command, '>', \$self{summary});
    return bless \%self, __PACKAGE__;
}

# Starts a load of many producers and consumers, which a test stops when its faults are over.
sub start_endless
{
    my ($queen, %options) = @_;
    return start(
        $queen,
        seconds => 300,
        producers => 12,
        partitions => 6,
        roam => 1,
        batch => 3,
        repeat => 5,
        consumers => 8,
        pop_batch => 20,
        pop_partitions => 2,
        lease => 2,
        %options);
}

# Starts the generator and waits for its end.
sub run { return start(@_)->finish; }

# Ends the generator at once: all its connections break.
sub kill    ## no critic
{
    my ($self) = @_;
    $self->{process}->signal('KILL');
    $self->{process}->finish;
    return;
}

# Lets the clients finish what they are at, and no more.
sub stop
{
    my ($self) = @_;
    $self->{process}->signal('TERM');
    return $self->finish;
}

# Waits for the end of the load and reads the history.
sub finish
{
    my ($self) = @_;
    $self->{process}->finish or BAIL_OUT('the load generator failed');
    $self->{totals} = $json->decode($self->{summary});
    note "load: $self->{summary}";
    open my $lines, '<', $self->{file} or die "$self->{file}: $!";
    while (my $line = <$lines>)
    {
        my $entry = $json->decode($line);
        push @{ $self->{ $entry->{op} } }, $entry;
    }
    close $lines;
    return $self;
}

sub totals { return $_[0]{totals}; }

# Entries of one kind: push, pop or ack.
sub entries { return @{ $_[0]{ $_[1] } || [] }; }

# Lets consumers work off what is left, and judges what they did with the rest. Options are
# those of the load.
sub drain
{
    my ($self, %options) = @_;
    my $rest = run($self->{queen}, queue => $self->{queue}, until_empty => 1, %options);
    push @{ $self->{$_} }, $rest->entries($_) for qw(pop ack);
    return;
}

# The log as the tables have it: partition => [ transaction ids by offset ].
sub log    ## no critic
{
    my ($self) = @_;
    my %log;
    my $rows = $self->{queen}->sql(<<"SQL");
SELECT p.name, s.base_offset + i, (queen.log_frame(s.blob, i)).transaction_id
  FROM queen.queues AS q
  JOIN queen.log_partitions AS p ON p.queue_id = q.id
  JOIN queen.log_segments AS s ON s.partition_id = p.id,
       generate_series(0, (s.end_offset - s.base_offset)::int) AS i
 WHERE q.name = '$self->{queue}'
SQL
    for my $row (split /\n/, $rows)
    {
        my ($partition, $offset, $id) = split /\|/, $row, 3;
        $log{$partition}[$offset] = $id;
    }
    return \%log;
}

sub report
{
    my ($name, @errors) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 2;
    return if ok(!@errors, $name);
    diag 'and ' . (@errors - 10) . ' more' if @errors > 10;
    diag $_ for @errors[ 0 .. min($#errors, 9) ];
    return;
}

# --- pushes ------------------------------------------------------------------------------------

# Which ids were answered as stored, and which were ever sent.
sub pushed
{
    my ($self) = @_;
    my (%stored, %sent);
    for my $push ($self->entries('push'))
    {
        my $statuses = $push->{statuses} || [];
        for my $i (0 .. $#{ $push->{ids} })
        {
            my $id = $push->{ids}[$i];
            $sent{$id} = $push->{partition};
            $stored{$id} = $push->{partition} if ($statuses->[$i] // '') =~ /^(?:queued|duplicate|buffered)$/;
        }
    }
    return (\%stored, \%sent);
}

# Every message answered as stored is there once, nothing else is, and the messages of one
# producer in one partition are in the order in which it sent them.
sub check_log
{
    my ($self, $name) = @_;
    my ($stored, $sent) = $self->pushed;
    my $log = $self->log;
    my (%offset, @twice, @foreign, @disordered);
    for my $partition (sort keys %$log)
    {
        my %last;
        for my $offset (0 .. $#{ $log->{$partition} })
        {
            my $id = $log->{$partition}[$offset];
            my ($producer, $number) = $id =~ /^(.*)-(\d+)$/;
            push @twice, "$id at $partition/$offset and $offset{$id}" if exists $offset{$id};
            push @foreign, "$id at $partition/$offset" if ($sent->{$id} // '') ne $partition;
            push @disordered, "$id after $producer-$last{$producer} in $partition"
              if exists $last{$producer} && $last{$producer} >= $number;
            $offset{$id} = "$partition/$offset";
            $last{$producer} = $number;
        }
    }
    report("$name: every message answered as stored is in the log", grep { !exists $offset{$_} } sort keys %$stored);
    report("$name: no message is in the log twice", @twice);
    report("$name: nothing else is in the log", @foreign);
    report("$name: messages of one producer are in order", @disordered);
    return;
}

# --- groups ------------------------------------------------------------------------------------

# Adds to each delivery and acknowledgement the offsets that it names.
sub locate
{
    my ($self) = @_;
    my $log = $self->log;
    my %offset;
    for my $partition (keys %$log)
    {
        $offset{ $log->{$partition}[$_] } = $_ for 0 .. $#{ $log->{$partition} };
    }
    for my $part (map { @{ $_->{parts} || [] } } $self->entries('pop'))
    {
        $part->{offsets} = [ map { $offset{$_} } @{ $part->{ids} } ];
    }
    for my $ack ($self->entries('ack'))
    {
        $ack->{offsets} = [ map { $offset{$_} } @{ $ack->{ids} } ];
    }
    return;
}

# Deliveries and acknowledgements by group and partition.
sub by_cursor
{
    my ($self) = @_;
    my %cursors;
    for my $pop ($self->entries('pop'))
    {
        for my $part (@{ $pop->{parts} || [] })
        {
            push @{ $cursors{"$pop->{group} $part->{partition}"}{deliveries} },
              { %$pop, offsets => $part->{offsets}, first => $part->{offsets}[0], last => $part->{offsets}[-1] };
        }
    }
    push @{ $cursors{"$_->{group} $_->{partition}"}{acks} }, $_ for $self->entries('ack');
    return \%cursors;
}

# The highest offset that the acknowledgement has certainly, or possibly, passed.
sub certainly_passed
{
    my ($ack) = @_;
    my $results = $ack->{results} || [];
    my $completed = $ack->{last} eq 'completed' ? $#{ $ack->{ids} } : $#{ $ack->{ids} } - 1;
    my @offsets = map { $results->[$_] ? $ack->{offsets}[$_] : () } 0 .. $completed;
    return @offsets ? max(@offsets) : -1;
}

sub possibly_passed
{
    my ($ack) = @_;
    return $ack->{outcome} eq 'fail' ? -1 : max(@{ $ack->{offsets} });
}

# Pairs each entry of the one list with the maximum of a value over those entries of the other
# that come before it, as the two keys say.
sub running_max
{
    my ($entries, $entry_key, $others, $other_key, $value, $use) = @_;
    my @others = sort { $a->{$other_key} <=> $b->{$other_key} } @$others;
    my $highest = -1;
    for my $entry (sort { $a->{$entry_key} <=> $b->{$entry_key} } @$entries)
    {
        while (@others && $others[0]{$other_key} < $entry->{$entry_key})
        {
            $highest = max($highest, $value->(shift @others));
        }
        $use->($entry, $highest);
    }
    return;
}

# Deliveries start at the first message that is not committed, and skip none.
sub delivery_errors
{
    my ($cursor, $deliveries, $acks) = @_;
    my (@gaps, @again, @skipped);
    for my $delivery (@$deliveries)
    {
        my @offsets = @{ $delivery->{offsets} };
        push @gaps, "$cursor: $delivery->{ids}[0]: @offsets" if grep { $offsets[$_] != $offsets[0] + $_ } 0 .. $#offsets;
    }
    running_max($deliveries, 'invoke', $acks, 'complete', \&certainly_passed,
        sub {
            my ($delivery, $passed) = @_;
            push @again, "$cursor: offset $delivery->{first} delivered after $passed was acknowledged"
              if $delivery->{first} <= $passed;
        });
    running_max($deliveries, 'complete', $acks, 'invoke', \&possibly_passed,
        sub {
            my ($delivery, $passed) = @_;
            push @skipped, "$cursor: offset $delivery->{first} delivered, only $passed acknowledged"
              if $delivery->{first} > $passed + 1;
        });
    return (\@gaps, \@again, \@skipped);
}

# A lease lives at least from the answer that grants it until the first acknowledgement under it
# is sent, or until its seconds are over, counted from the request. No two may live at once.
sub lease_errors
{
    my ($cursor, $deliveries, $acks) = @_;
    my (%ended, @errors, $before);
    for my $ack (@$acks)
    {
        $ended{ $ack->{lease} } = min($ended{ $ack->{lease} } // $ack->{invoke}, $ack->{invoke});
    }
    for my $delivery (sort { $a->{complete} <=> $b->{complete} } grep { $_->{lease} ne '' } @$deliveries)
    {
        my $end = $delivery->{invoke} + 1_000_000 * $delivery->{seconds};
        $end = min($end, $ended{ $delivery->{lease} } // $end);
        push @errors, "$cursor: lease $delivery->{lease} while $before->{lease} is live"
          if $before && min($end, $before->{end}) > $delivery->{complete};
        $before = { lease => $delivery->{lease}, end => $end } if !$before || $end > $before->{end};
    }
    return @errors;
}

# A group that never failed was given every message once.
sub check_once
{
    my ($self, $name) = @_;
    my (%times, @errors);
    $self->locate;
    my $log = $self->log;
    my $cursors = $self->by_cursor;
    for my $cursor (keys %$cursors)
    {
        $times{$cursor}{$_}++ for map { @{ $_->{offsets} } } @{ $cursors->{$cursor}{deliveries} };
    }
    for my $cursor (sort keys %times)
    {
        my ($partition) = $cursor =~ / (.*)/;
        push @errors, map { ($times{$cursor}{$_} // 0) == 1 ? () : "$cursor: offset $_: " . ($times{$cursor}{$_} // 0) . ' times' }
          0 .. $#{ $log->{$partition} };
    }
    push @errors, 'not all partitions' if keys %times != keys %$log;
    report("$name: every message is delivered once", @errors);
    return;
}

sub check_groups
{
    my ($self, $name) = @_;
    my (@gaps, @again, @skipped, @leases);
    $self->locate;
    my $cursors = $self->by_cursor;
    for my $cursor (sort keys %$cursors)
    {
        my @lists = map { $cursors->{$cursor}{$_} || [] } qw(deliveries acks);
        my ($gaps, $again, $skipped) = delivery_errors($cursor, @lists);
        push @gaps, @$gaps;
        push @again, @$again;
        push @skipped, @$skipped;
        push @leases, lease_errors($cursor, @lists);
    }
    report("$name: deliveries ascend without a gap (V-21)", @gaps);
    report("$name: nothing acknowledged is delivered again", @again);
    report("$name: no delivery skips a message (V-21)", @skipped);
    report("$name: one live lease per partition and group (V-20)", @leases);
    return;
}

# After a drain: every group is at the end of every partition, and its count of messages is that
# of the offsets it passed.
sub check_drained
{
    my ($self, $name, @groups) = @_;
    my $list = join ', ', map { "('$_')" } @groups;
    report("$name: every group is at the end, and counted what it passed (V-51)",
        split /\n/, $self->{queen}->sql(<<"SQL"));
SELECT p.name, g.name, c.committed, c.total_consumed, p.last_offset
  FROM queen.queues AS q
  JOIN queen.log_partitions AS p ON p.queue_id = q.id
 CROSS JOIN (VALUES $list) AS g (name)
  LEFT JOIN queen.log_consumers AS c ON c.partition_id = p.id AND c.consumer_group = g.name
 WHERE q.name = '$self->{queue}'
   AND (c.committed, c.total_consumed) IS DISTINCT FROM (p.last_offset, p.last_offset + 1)
SQL
    return;
}

# --- tables ------------------------------------------------------------------------------------

my @rules = (
    [ 'offsets are dense from the start of the log to its end (V-02)', <<'SQL' ],
SELECT p.id, s.base_offset
  FROM queen.log_partitions AS p
  LEFT JOIN LATERAL (SELECT base_offset, end_offset,
                            coalesce(lag(end_offset) OVER (ORDER BY base_offset), p.log_start - 1) AS before,
                            lead(base_offset) OVER (ORDER BY base_offset) IS NULL AS is_last
                       FROM queen.log_segments WHERE partition_id = p.id) AS s ON true
 WHERE (s.base_offset IS NULL AND p.last_offset >= p.log_start)
    OR s.base_offset <> s.before + 1 OR (s.is_last AND s.end_offset <> p.last_offset)
SQL
    [ 'stamps never decrease with the offset (V-04)', <<'SQL' ],
SELECT * FROM (SELECT partition_id, base_offset,
                      created_at < lag(created_at) OVER (PARTITION BY partition_id ORDER BY base_offset) AS back
                 FROM queen.log_segments) AS s WHERE back
SQL
    [ 'the sidecar holds the hashes of the segments (V-03)', <<'SQL' ],
SELECT s.partition_id, s.base_offset
  FROM queen.log_segments AS s
  JOIN queen.log_partitions AS p ON p.id = s.partition_id
  LEFT JOIN queen.log_txns AS t USING (partition_id, base_offset)
 WHERE s.base_offset >= p.txns_start
   AND (t.hashes, t.end_offset, t.created_at)
       IS DISTINCT FROM (queen.log_segment_hashes(s.blob), s.end_offset, s.created_at)
SQL
    [ 'no cursor is past the end of its partition', <<'SQL' ],
SELECT c.partition_id, c.consumer_group
  FROM queen.log_consumers AS c
  JOIN queen.log_partitions AS p ON p.id = c.partition_id
 WHERE c.committed > p.last_offset OR c.batch_end > p.last_offset OR c.batch_end <= c.committed
SQL
    [ 'segments and bytes are counted right', <<'SQL' ],
SELECT p.id
  FROM queen.log_partitions AS p
  LEFT JOIN queen.log_segments AS s ON s.partition_id = p.id
 GROUP BY p.id HAVING (p.segments, p.bytes) <> (count(s.blob), coalesce(sum(length(s.blob)), 0))
SQL
    [ 'dead letters have a reason', q{SELECT id FROM queen.log_dlq WHERE error = ''} ],
);

# What must hold of the tables of a quiet database.
sub check_tables
{
    my ($queen, $name) = @_;
    report("$name: $_->[0]", split /\n/, $queen->sql($_->[1])) for @rules;
    check_storage($queen, $name);
    return;
}

# What must hold of heaps and indexes, whatever is in them.
sub check_storage
{
    my ($queen, $name) = @_;
    my $node = $queen->node;
    $queen->sql('CREATE EXTENSION IF NOT EXISTS amcheck');
    my ($output, $errors);
    my $clean = IPC::Run::run(
        [
            'pg_amcheck', '--host', $node->host, '--port', $node->port, '--database', 'postgres',
            '--schema', 'queen', '--heapallindexed'
        ],
        '>', \$output, '2>', \$errors);
    report("$name: tables and indexes are sound", $clean ? () : ($output, $errors));
    return;
}

1;
