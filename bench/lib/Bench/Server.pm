# The server that is measured: a private one, or one that is there already.
#
# The private one is a fresh cluster of its own, made by scripts/up, so it works for root too.
# Of another one the URL is known, and the database where libpq's variables name it.
package Bench::Server;

use strict;
use warnings;
use Bench::Machine qw(cpu_of cpu_of_tree free_port listener memory_of);
use Cwd 'abs_path';
use FindBin;

my $root = abs_path("$FindBin::RealBin/..");

# What a private cluster is given beside PostgreSQL's defaults: room, so that a run does not
# measure checkpoints. Durability is left as it is, and checked.
my %settings = (
    shared_buffers => '1GB',
    max_wal_size => '16GB',
    min_wal_size => '4GB',
    checkpoint_timeout => '30min',
    max_connections => 200,
);

# More than a case writes: 2 GB.
my $wal_files = 128;

sub new
{
    my ($class, %options) = @_;
    my $self = bless { url => $options{url} }, $class;
    $self->start_private unless $self->{url};
    ($self->{port}) = $self->{url} =~ m{^http://(?:127\.0\.0\.1|localhost):(\d+)/?$}
      or die "$self->{url}: only http://127.0.0.1:PORT can be measured\n";
    $self->{frontend} = listener($self->{port}) or die "nobody listens on port $self->{port}\n";
    $self->{database} = $options{database} // ($ENV{PGHOST} ? 1 : 0);
    if ($self->{database})
    {
        ($self->{postmaster}) = $self->sql("SELECT pg_read_file('postmaster.pid')") =~ /^(\d+)/;
        $self->check_durability;
    }
    return $self;
}

sub port { return $_[0]{port}; }
sub has_database { return $_[0]{database}; }

# A directory on the file system of the data, for files of the benchmark.
sub directory
{
    my ($self) = @_;
    return $self->{home} // '/var/tmp';
}

sub script
{
    my ($self, $name) = @_;
    system("$root/scripts/$name >>'$root/build/bench/$name.log' 2>&1") == 0
      or die "scripts/$name failed, see build/bench/$name.log\n";
    return;
}

sub start_private
{
    my ($self) = @_;
    $self->{home} = $ENV{QUEEN_HOME} = "$root/build/bench/server";
    delete @ENV{qw(QUEEN_DSN PGHOST PGPORT PGUSER PGDATABASE PGPASSFILE)};
    system('mkdir', '-p', "$root/build/bench");
    $self->script('down') if -e "$self->{home}/pg";
    system('rm', '-rf', map { "$self->{home}/$_" } qw(data pgpass frontend.pgpass));
    $ENV{QUEEN_PG_PORT} = free_port();
    $ENV{QUEEN_HTTP_PORT} = free_port();
    $self->{private} = $$;
    $self->script('up');
    $self->{url} = "http://127.0.0.1:$ENV{QUEEN_HTTP_PORT}";
    for (split /\n/, `$root/scripts/env`)
    {
        $ENV{$1} = $2 if /^export (PG\w+)='(.*)'$/;
    }
    $self->sql(map { "ALTER SYSTEM SET $_ = '$settings{$_}'" } sort keys %settings);
    $self->script('down');
    $self->script('up');
    $self->fill_wal;
    return;
}

# A server that has run for a while writes into recycled WAL files. A new one has to fill 16 MB with
# zeros first, every second or so under load, while commits wait: that would be measured, too.
sub fill_wal
{
    my ($self) = @_;
    my $file = q{SELECT pg_logical_emit_message(false, 'bench', ''); SELECT pg_switch_wal()};
    $self->sql(($file) x $wal_files);
    return;
}

# What the case before has left to be written is not written during the next one, and its WAL
# files are recycled.
sub settle
{
    my ($self) = @_;
    $self->sql('CHECKPOINT') if $self->{private};
    return;
}

sub stop
{
    my ($self) = @_;
    $self->script('down') if ($self->{private} // 0) == $$;
    delete $self->{private};
    return;
}

sub DESTROY { local ($?, $@); $_[0]->stop; return; }

# Runs statements, each a transaction, as superuser; returns what they print, unaligned.
sub sql
{
    my ($self, @statements) = @_;
    open my $pipe, '-|', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', map { ('-c', $_) } @statements
      or die "psql: $!\n";
    my $output = do { local $/ = undef; <$pipe> };
    close $pipe or die "psql failed: @statements\n";
    chomp $output;
    return $output;
}

# A number that was got without durability is none.
sub check_durability
{
    my ($self) = @_;
    for my $name (qw(synchronous_commit fsync full_page_writes))
    {
        my $value = $self->sql("SHOW $name");
        die "$name is $value: not measured\n" unless $value eq 'on';
    }
    my $weaker = $self->sql(q{SELECT setconfig FROM pg_db_role_setting
        WHERE setconfig::text ~ 'synchronous_commit|fsync'});
    die "a role or a database has $weaker: not measured\n" if $weaker ne '';
    return;
}

# What the server has used up to now.
sub usage
{
    my ($self) = @_;
    my %usage = (frontend => cpu_of($self->{frontend}));
    return \%usage unless $self->{database};
    @usage{qw(commits wal)} = split /\|/, $self->sql(
        q{SELECT pg_snapshot_xmax(pg_current_snapshot()), pg_current_wal_insert_lsn() - '0/0'});
    $usage{postgres} = cpu_of_tree($self->{postmaster});
    return \%usage;
}

sub memory
{
    my ($self) = @_;
    return memory_of($self->{frontend});
}

# Creates a queue with so many partitions "p0", "p1", ..., through the queue's own procedure.
sub provision
{
    my ($self, $queue, $partitions) = @_;
    my $step = 10_000;
    $self->sql(qq{
        DO \$\$
        DECLARE
            tenant CONSTANT uuid = '00000000-0000-0000-0000-000000000001';
        BEGIN
            FOR start IN 0 .. $partitions - 1 BY $step LOOP
                PERFORM queen.log_provision(array_agg(tenant), array_agg('$queue'::text),
                                            array_agg('p' || i))
                   FROM generate_series(start, least(start + $step, $partitions) - 1) AS i;
                COMMIT;
            END LOOP;
        END
        \$\$});
    $self->sql('VACUUM (ANALYZE) queen.log_partitions');
    return;
}

# How a queue's messages were stored: segments per commit, bytes and messages per segment.
sub storage
{
    my ($self, $queue) = @_;
    my %storage;
    @storage{qw(segments_per_commit bytes_per_segment messages_per_segment)} = split /\|/, $self->sql(qq{
        SELECT round(count(*)::numeric / count(DISTINCT s.xmin::text), 2),
               round(avg(length(s.blob)), 1), round(avg(s.end_offset - s.base_offset + 1), 2)
          FROM queen.log_segments AS s
          JOIN queen.log_partitions AS p ON p.id = s.partition_id
          JOIN queen.queues AS q ON q.id = p.queue_id
         WHERE q.name = '$queue'});
    return \%storage;
}

# Pairs for the head of a report.
sub describe
{
    my ($self) = @_;
    return ('server' => $self->{url}, 'database' => 'not known') unless $self->{database};
    my $command = do { local (@ARGV, $/) = "/proc/$self->{frontend}/cmdline"; <> };
    return (
        'server' => $self->{private} ? 'private' : $self->{url},
        'PostgreSQL' => $self->sql('SHOW server_version'),
        'its settings' => $self->sql(q{
            SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name)
              FROM pg_settings
             WHERE source IN ('configuration file', 'command line')
               AND name !~ 'director|_file$|^lc_|^port$|listen|TimeZone|log_|DateStyle|text_search'}),
        'durability' => 'synchronous_commit = on, fsync = on, full_page_writes = on',
        'front end' => join(' ', map { s{.*/}{}r } split /\0/, $command) =~ s/--port \d+ ?//r,
    );
}

1;
