# What the machine is, and what its processes use.
package Bench::Machine;

use strict;
use warnings;
use Exporter 'import';
use IO::Socket::INET;
use POSIX ();

our @EXPORT_OK = qw(cpu_of cpu_of_tree free_port listener memory_of describe);

my $ticks = POSIX::sysconf(POSIX::_SC_CLK_TCK());

sub slurp
{
    my ($path) = @_;
    open my $file, '<', $path or return;
    local $/ = undef;
    return scalar <$file>;
}

# Fields of /proc/PID/stat that follow the name, which may hold anything; none when it is gone.
sub stat_of
{
    my ($pid) = @_;
    my $text = slurp("/proc/$pid/stat") // return;
    return split ' ', $text =~ s/^.*\) //sr;
}

# Seconds of processor time of a process.
sub cpu_of
{
    my ($pid) = @_;
    my @stat = stat_of($pid) or return 0;
    return ($stat[11] + $stat[12]) / $ticks;
}

# Seconds of a process and its children, those that have ended and been waited for included.
sub cpu_of_tree
{
    my ($root) = @_;
    my %children;
    my $sum = 0;
    for my $path (glob '/proc/[0-9]*')
    {
        my ($pid) = $path =~ /(\d+)/;
        my @stat = stat_of($pid) or next;
        push @{ $children{ $stat[1] } }, $pid;
    }
    my @todo = ($root);
    while (defined(my $pid = shift @todo))
    {
        my @stat = stat_of($pid) or next;
        $sum += $stat[11] + $stat[12] + $stat[13] + $stat[14];
        push @todo, @{ $children{$pid} || [] };
    }
    return $sum / $ticks;
}

# Resident bytes of a process, pages that it shares counted in part.
sub memory_of
{
    my ($pid) = @_;
    my ($kb) = (slurp("/proc/$pid/smaps_rollup") // '') =~ /^Pss:\s+(\d+)/m;
    return ($kb // 0) * 1024;
}

sub free_port
{
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 1)
      or die "no free port: $!\n";
    return $socket->sockport;
}

# Process that listens on a TCP port, undef when none is found.
sub listener
{
    my ($port) = @_;
    my $local = sprintf ':%04X', $port;
    my @listening = grep { ($_->[1] // '') =~ /$local$/ && $_->[3] eq '0A' }
      map { [split] } map { split /\n/, slurp($_) // '' } '/proc/net/tcp', '/proc/net/tcp6';
    return unless @listening;
    my $inode = $listening[0][9];
    return unless $inode;
    for my $fd (glob '/proc/[0-9]*/fd/*')
    {
        return $1 if (readlink($fd) // '') eq "socket:[$inode]" && $fd =~ m{^/proc/(\d+)/};
    }
    return;
}

# Pairs of what and how much, for the head of a report.
sub describe
{
    my ($directory) = @_;
    my ($model) = slurp('/proc/cpuinfo') =~ /^model name\s*:\s*(.*)$/m;
    my $cores = () = slurp('/proc/cpuinfo') =~ /^processor\s*:/mg;
    my ($memory) = slurp('/proc/meminfo') =~ /^MemTotal:\s+(\d+)/m;
    my ($load) = slurp('/proc/loadavg') =~ /^(\S+)/;
    my ($file_system) = `stat -f -c %T '$directory'` =~ /(\S+)/;
    return (
        'processor' => $model // 'unknown',
        'cores' => $cores,
        'memory' => sprintf('%.0f GiB', $memory / 1024 / 1024),
        'kernel' => (POSIX::uname())[2],
        'file system of the data' => $file_system,
        'load before' => $load,
    );
}

1;
