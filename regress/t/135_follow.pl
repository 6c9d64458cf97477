# Parked pops look in the transaction of the push that they wait for: one commit stores a message and
# leases it.
#
# The fallback poll of these front ends comes after a minute and the polls give up before that. Without
# workers, nothing but the test's own requests assigns a transaction id or sends a notification.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use JSON::PP ();
use QueenTest 'wait_until';
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

my $queen = QueenTest->new('follow', conf => <<'END');
queen.workers = off
autovacuum = off
log_lock_waits = off
restart_after_crash = on
wal_level = replica
max_wal_senders = 1
synchronous_standby_names = 'nobody'
synchronous_commit = local
END
my $node = $queen->node;
my @no_fallback = qw(--poll-initial 60000 --poll-max 60000 --threads 1);
my $web = $queen->start_frontend(args => \@no_fallback);

sub parked { return ($_[0] // $web)->get('/metrics')->{json}{queen}{parkedPops}; }

# Starts a waiting pop and returns its connection once it is parked.
sub park
{
    my ($path, $frontend) = @_;
    my $before = parked($frontend);
    my $connection = ($frontend // $web)->connect;
    $connection->send('GET', "/api/v1/pop/queue/$path" . ($path =~ /\?/ ? '&' : '?') . 'wait=true' . ($path =~ /timeout/ ? '' : '&timeout=50000'));
    wait_until(sub { parked($frontend) == $before + 1 }, "the poll of $path is parked");
    return $connection;
}
sub messages
{
    my ($connection) = @_;
    my $response = $connection->receive;
    return $response->{status} == 200 ? @{ $response->{json}{messages} } : ();
}
sub payloads { return join ' ', map { $_->{data} } messages(@_); }
sub item { my ($queue, $partition, $payload, %more) = @_; return { queue => $queue, partition => $partition, payload => $payload, %more }; }
sub push_to { return join ' ', map { $_->{status} } @{ $web->push(item(@_)) }; }
sub next_xid { return $queen->sql('SELECT pg_snapshot_xmax(pg_current_snapshot())'); }
sub counters { return $queen->sql("SELECT pushes, push_messages, pops, empty_pops, pop_messages, leases FROM queen.pg_stat_queen_queues WHERE queue = '$_[0]'"); }
sub ack
{
    my ($message, %more) = @_;
    return $web->post('/api/v1/ack', { %{$message}{qw(transactionId partitionId leaseId)}, status => 'completed', %more })->{status};
}

# One commit for all of it, whatever way the polls asked.
for my $mode ('autoAck=true', 'leaseSeconds=3600')
{
    my $queue = 'one' . length $mode;
    push_to($queue, $_, 0) for qw(p q);
    is(scalar(() = $web->pop($queue, consumerGroup => $_, subscriptionMode => 'all', partitions => 2, autoAck => 'true')), 2, "$mode: a cursor on each partition") for qw(g h);
    my @polls = map { park("$queue$_&$mode") } '/partition/p?consumerGroup=g', '?consumerGroup=h', '?consumerGroup=h', '/partition/q?consumerGroup=g';
    my $before = next_xid();
    is(push_to($queue, 'p', 1), 'queued', "$mode: a push to parked polls");
    is(payloads($_), 1, "$mode: the first of each group gets it") for @polls[ 0, 1 ];
    is(next_xid() - $before, 1, "$mode: push and pops are one transaction");
    is(parked(), 2, "$mode: the others stay");
    is($web->post('/api/v1/push', { items => [ map { item($queue, $_, 2) } qw(p q) ] })->{status}, 201, "$mode: a push to two partitions");
    is(payloads($_), 2, "$mode: answers the others, each from one") for @polls[ 2, 3 ];
    is(next_xid() - $before, 2, "$mode: in another transaction");
}

# First contacts: with a partition that is new, a queue that is new, and a time to start from.
{
    $web->post('/api/v1/configure', { queue => 'first' });
    my $future = '2100-01-01T00:00:00Z';
    my @polls = map { park($_) } 'first', 'first?consumerGroup=g', 'first/partition/p?consumerGroup=h', 'first/partition/p?consumerGroup=i&subscriptionMode=new',
      "first?consumerGroup=j&subscriptionFrom=$future", 'nowhere?consumerGroup=h', 'nothing/partition/p?consumerGroup=h';
    push_to($_, 'p', $_ . '1') for qw(first nowhere nothing);
    is(payloads($polls[$_]), 'first1', "first contact $_") for 0 .. 3;
    is(payloads($polls[5]), 'nowhere1', 'a queue that the poll has created');
    is(payloads($polls[6]), 'nothing1', 'a queue that was not there');
    is(parked(), 1, 'who starts later gets nothing');
    $polls[4]->close;
    wait_until(sub { parked() == 0 }, 'the poll is dropped');
}

# More polls than one call takes, and fewer than there is for them.
{
    push_to('many', 'p', 0);
    my @polls = map { park("many/partition/p?batch=1&consumerGroup=g$_&subscriptionMode=new") } 1 .. 40;
    push_to('many', 'p', 1);
    is(join(' ', map { payloads($_) } @polls), join(' ', (1) x 40), 'forty groups');
    my @few = map { park('wide') } 1, 2;
    $web->push(map { item('wide', "p$_", $_) } 1 .. 4);
    is(join(' ', map { payloads($_) } @few) =~ /^\d \d$/, 1, 'two polls take a partition each');
    is(scalar(() = $web->pop('wide', partitions => 9)), 2, 'of which the others are free');
    @few = map { park('wide?consumerGroup=g&subscriptionMode=new') } 1 .. 4;
    $web->push(map { item('wide', "p$_", $_ + 4) } 1 .. 2);
    is(join(' ', sort map { payloads($_) } @few[ 0, 1 ]), '5 6', 'the oldest polls come first');
    is(parked(), 2, 'the others stay');
    $_->close for @few;
    wait_until(sub { parked() == 0 }, 'the polls are dropped');
}

# Where it finds nothing the poll stays, and hears of what comes later.
{
    push_to('held', 'p', 1);
    my ($held) = $web->pop('held', partition => 'p', leaseSeconds => 3600);
    my @polls = map { park("held$_") } '/partition/p', '';
    push_to('held', 'p', 2);
    wait_until(sub { parked() == 2 }, 'another lease is in the way');
    ack($held);
    wait_until(sub { grep { $_->readable } @polls }, 'its end wakes a poll');
    my ($woken, $other) = sort { $b->readable <=> $a->readable } @polls;
    my ($got) = messages($woken);
    is($got->{data}, 2, 'which gets the message');
    wait_until(sub { parked() == 1 }, 'the other stays');
    ack($got);
    push_to('held', 'p', 3);
    is(payloads($other), 3, 'until the next push');

    $web->post('/api/v1/configure', { queue => 'delayed', options => { delayedProcessing => 1 } });
    $web->post('/api/v1/configure', { queue => 'window', options => { windowBuffer => 1 } });
    @polls = map { park($_) } qw(delayed window);
    push_to($_, 'p', 4) for qw(delayed window);
    wait_until(sub { parked() == 2 }, 'what is not mature is not delivered');
    is(payloads($_), 4, 'until it is') for @polls;

    my $poll = park('dup?autoAck=true');
    is(push_to('dup', 'p', 5, transactionId => 'x'), 'queued', 'a message');
    is(payloads($poll), 5, 'is delivered');
    $poll = park('dup?autoAck=true');
    is(push_to('dup', 'p', 6, transactionId => 'x'), 'duplicate', 'a duplicate');
    wait_until(sub { parked() == 1 }, 'is not');
    push_to('dup', 'p', 7);
    is(payloads($poll), 7, 'but what comes after it');
}

# What an auto-acked pop leaves of a segment goes to the next poll.
{
    push_to('rest', 'p', 0);
    $web->pop('rest', autoAck => 'true');
    my @polls = map { park("rest?autoAck=true&batch=$_") } 1, 2, 3;
    my $others = park('rest?autoAck=true&consumerGroup=h&subscriptionMode=new&batch=9');
    $web->push(map { item('rest', 'p', $_) } 1 .. 5);
    is(join(', ', map { payloads($_) } @polls), '1, 2 3, 4 5', 'three polls share the messages of one segment');
    is(payloads($others), '1 2 3 4 5', 'another group gets all of them');
}

# A pop that fails neither fails nor loses the push; nothing counts twice.
{
    push_to('failing', 'p', 0);
    $web->pop('failing', autoAck => 'true');
    my $poll = park('failing?leaseSeconds=3600');
    my $counted = counters('failing');
    is($counted, '1|1|2|1|1|0', 'what the queue has counted so far');
    $queen->sql(q{CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
                  CREATE TRIGGER refuse BEFORE UPDATE ON queen.log_consumers FOR EACH ROW EXECUTE FUNCTION refuse()});
    is(push_to('failing', 'p', 1), 'queued', 'a push whose pop raises an error is stored');
    is($poll->receive->{status}, 500, 'the poll is told');
    is(counters('failing'), '2|2|2|1|1|0', 'the push counts once, the pop does not');
    $queen->sql('DROP TRIGGER refuse ON queen.log_consumers; DROP FUNCTION refuse');
    is(scalar(() = $web->pop('failing', autoAck => 'true')), 1, 'the next pop gets the message');

    my $session = $node->background_psql('postgres', on_error_stop => 1);
    $poll = park('failing?leaseSeconds=3600');
    $session->query_safe('BEGIN; LOCK TABLE queen.log_consumers');
    is(push_to('failing', 'p', 2), 'queued', 'a push whose pop meets a locked table is stored');
    $session->query_safe('COMMIT');
    $session->quit;
    is(payloads($poll), 2, 'the poll gets it when the table is free');
}

sub ack_of
{
    my ($message) = @_;
    return [ 'POST', '/api/v1/ack', { %{$message}{qw(transactionId partitionId leaseId)}, status => 'completed' } ];
}

# Requests that become ready while the only connection for them is taken: an acknowledgement and a pop share a transaction.
my @narrow = (@no_fallback, '--read-connections', 1);
my $nobody = '00000000-0000-7000-8000-000000000000';
sub together
{
    my ($frontend, @requests) = @_;
    my @backends = split /\n/, $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'queen_web'});
    kill 'STOP', @backends;
    my @connections;
    for (ack_of({ transactionId => 'none', partitionId => $nobody, leaseId => $nobody }), @requests)
    {
        push @connections, $frontend->connect;
        $connections[-1]->send(@$_);
        parked($frontend) for 1 .. 3;    # turns of its loop
    }
    kill 'CONT', @backends;
    return @connections[1 .. @requests];
}

# An acknowledgement does not wait until the pop that goes with it gets at a locked table.
{
    my $patient = $queen->start_frontend(args => [ @narrow, qw(--lock-timeout 600000 --statement-timeout 600000) ]);
    push_to('shared', 'p', $_) for 1, 2;
    my ($got) = $patient->pop('shared', leaseSeconds => 3600, batch => 1);
    is($got->{data}, 1, 'a message is leased');
    my $session = $node->background_psql('postgres', on_error_stop => 1);
    $session->query_safe('BEGIN; LOCK TABLE queen.consumer_groups_metadata');
    my ($ack, $pop) = together($patient, ack_of($got), [ 'GET', '/api/v1/pop/queue/shared?autoAck=true' ]);
    is($ack->receive->{json}[0]{success}, JSON::PP::true, 'it is acknowledged while the table is locked');
    ok(!$pop->readable, 'the pop waits for it');
    $session->query_safe('COMMIT');
    $session->quit;
    is(payloads($pop), 2, 'and gets what the acknowledgement has freed');
    $patient->stop;
}

# The client of the poll leaves while the transaction is under way.
{
    my ($first, $second) = map { park('gone') } 1, 2;
    my @backends = split /\n/, $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE usename = 'queen_web'});
    kill 'STOP', @backends;
    my $push = $web->connect;
    $push->send('POST', '/api/v1/push', { items => [ item('gone', 'p', 1) ] });
    wait_until(sub { parked() == 1 }, 'the first poll looks');
    ok(!$push->readable, 'the push is not answered before it is committed');
    setsockopt $first->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
    $first->close;
    kill 'CONT', @backends;
    is($push->receive->{json}[0]{status}, 'queued', 'the push is stored');
    is(payloads($second), 1, 'the lease goes on to the next poll');
}

# What is pushed while commits wait for a standby that is not there is written, and nobody sees it yet.
sub commits
{
    my ($level) = @_;
    $node->append_conf('postgresql.conf', "synchronous_commit = $level");
    $node->reload;
    wait_until(sub { $queen->sql('SHOW synchronous_commit') eq $level }, "commits are $level");
}
sub push_slowly
{
    my $push = $web->connect;
    commits('on');
    $push->send('POST', '/api/v1/push', { items => [ item(@_) ] });
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) }, 'the push is at its commit');
    return $push;
}
sub finish_push
{
    my ($push) = @_;
    commits('local');
    $queen->sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
    return $push->receive->{json}[0]{status};
}

# The poll that looks with the push takes something older, and the one that was told of that has looked.
{
    push_to('older', $_, 0) for qw(p q);
    $web->pop('older', autoAck => 'true', partitions => 2);
    my ($first, $second) = map { park('older') } 1, 2;
    $queen->sql(q{SELECT queen.push('older', '1', 'p')});
    my $push = push_slowly('older', 'q', 2);
    my $looks = sub { $queen->sql(q{SELECT empty_pops FROM queen.pg_stat_queen_queues WHERE queue = 'older'}) };
    my $before = $looks->();
    $web->post('/internal/api/notify', { queue => 'older', partition => 'p' });
    wait_until(sub { $looks->() > $before && parked() == 1 }, 'the second poll finds nothing yet');
    is(finish_push($push), 'queued', 'the push is stored');
    is(payloads($first), 1, 'the first poll gets what is older');
    is(payloads($second), 2, 'the second one the news');
}

# The poll that looks with the push finds nothing yet, and ends with the commit.
for my $end (qw(hangs_up is_late))
{
    push_to($end, 'p', 0);
    $web->pop($end, autoAck => 'true');
    $web->post('/api/v1/configure', { queue => $end, options => { delayedProcessing => 1 } });
    my ($first, $second) = map { park($_) } ($end eq 'is_late' ? "$end?timeout=1000" : $end), $end;
    my $push = push_slowly($end, 'p', 1);
    is(parked(), 1, "the first poll, which $end, looks");
    if ($end eq 'hangs_up')
    {
        setsockopt $first->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
        $first->close;
    }
    $queen->sql('SELECT pg_sleep(1.1)');
    is(finish_push($push), 'queued', 'the push is stored');
    is($first->receive->{status}, 204, 'the first poll is over') if $end eq 'is_late';
    is(payloads($second), 1, 'the second poll gets it');
}

# Backends die when a message is written, or acknowledged, and the pop that goes with it is under way.
{
    push_to($_, 'p', 0) for qw(killed acked);
    my ($leased) = $web->pop('acked', leaseSeconds => 3600);
    my $narrow = $queen->start_frontend(args => \@narrow);
    my $poll = park('killed?consumerGroup=g&subscriptionMode=new');
    my $definition = $queen->sql(q{SELECT pg_get_functiondef('queen.log_first_contact'::regproc)});
    $queen->sql(($definition =~ s/AS \$function\$.*\$function\$/AS \$function\$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END \$function\$/sr));
    my $push = $web->connect;
    my @items = ({ items => [ item('killed', 'p', 1, transactionId => 'k') ] });
    $push->send('POST', '/api/v1/push', @items);
    my ($ack, $pop) = together($narrow, ack_of($leased), [ 'GET', '/api/v1/pop/queue/acked?consumerGroup=g&subscriptionMode=all' ]);
    my @pids;
    wait_until(sub { (@pids = split /\n/, $queen->sql(q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'})) == 2 }, 'the pops are under way');
    ok(!$_->readable, 'nobody is answered before the commit') for $push, $poll, $ack, $pop;
    kill 'KILL', $pids[0];
    is($_->receive->{status}, 503, 'its outcome is not known') for $poll, $push, $ack, $pop;
    wait_until(sub { eval { $queen->sql($definition); 1 } }, 'the server is back');
    $web->wait_healthy;
    is($web->post('/api/v1/push', @items)->{json}[0]{status}, 'queued', 'nothing was stored');
    is(join(' ', map { $_->{data} } $web->pop('killed', consumerGroup => 'g', partition => 'p', autoAck => 'true')), 1, 'the message is there');
    is(scalar(() = $web->pop('killed', consumerGroup => 'g')), 0, 'once');
    is(scalar(() = $web->pop('acked')), 0, 'nor acknowledged: the lease holds');
    is(ack($leased), 200, 'it can be acknowledged again');
    is(scalar(() = $web->pop('acked')), 0, 'which ends it');
    is(join(' ', map { $_->{data} } $web->pop('acked', consumerGroup => 'g', subscriptionMode => 'all')), 0, 'the other group gets the message');
}

# Two front ends: each serves its own polls; what it has no poll for goes to the other by notification.
{
    $node->append_conf('postgresql.conf', 'queen.workers = on');
    $node->reload;
    my $other = $queen->start_frontend(args => \@no_fallback);
    wait_until(sub { $queen->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'queen wake'}) == 1 }, 'the wake worker runs');
    my $mine = park('two');
    my @theirs = map { park($_, $other) } 'two', 'two?consumerGroup=h';
    push_to('two', 'p', 1);
    is(payloads($mine), 1, 'the poll of the same front end');
    is(payloads($theirs[1]), 1, 'the other group');
    push_to('two', 'q', 2);
    is(payloads($theirs[0]), 2, 'nobody here waits');

    push_to('missed', 'p', 0);
    $web->pop('missed', autoAck => 'true');
    my $poll = park('missed');
    my $listening = q{FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()};
    $queen->sql("ALTER ROLE queen_web NOLOGIN; SELECT pg_terminate_backend(pid, 60000) $listening");
    $queen->sql(q{SELECT queen.push('missed', '1', 'p'); ALTER ROLE queen_web LOGIN});
    is(payloads($poll), 1, 'what came while nobody listened');
}
$queen->finish;
