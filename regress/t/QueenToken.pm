# Keys and tokens for tests, made with openssl while they run.
#
#   my $key = QueenToken::key('RS256');                  # HS*, RS*, PS*, ES*, EdDSA
#   my $token = $key->token({ sub => 'me', role => 'admin' });
#   write_file($jwks, QueenToken::key_set($key));
package QueenToken;

use strict;
use warnings;
use Digest::SHA ();
use JSON::PP ();
use MIME::Base64 'encode_base64url';
use PostgreSQL::Test::Utils;

my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my %curves = (256 => [ 'prime256v1', 'P-256', 32 ], 384 => [ 'secp384r1', 'P-384', 48 ], 512 => [ 'secp521r1', 'P-521', 66 ]);
my $dir = PostgreSQL::Test::Utils::tempdir;
my $keys = 0;

sub openssl
{
    my ($input, @args) = @_;
    my ($output, $error);
    IPC::Run::run([ 'openssl', @args ], '<', \$input, '>', \$output, '2>', \$error)
      or die "openssl @args: $error";
    return $output;
}

sub spew
{
    my ($path, $text) = @_;
    open my $file, '>', $path or die "$path: $!";
    print $file $text;
    close $file or die "$path: $!";
    return $path;
}

# A new key for an algorithm. Options: id (its kid), bits (of RSA), secret (of HS).
sub key
{
    my ($algorithm, %options) = @_;
    my ($family, $size) = $algorithm =~ /^(HS|RS|PS|ES|Ed)(\d*)/;
    my $self = bless { algorithm => $algorithm, family => $family, size => $size, %options }, __PACKAGE__;
    if ($family eq 'HS')
    {
        $self->{secret} //= "secret $algorithm of at least thirty-two bytes";
        return $self;
    }
    my @kind =
        $family eq 'ES' ? ('EC', '-pkeyopt', "ec_paramgen_curve:$curves{$size}[0]")
      : $family eq 'Ed' ? ('ED25519')
      : ('RSA', '-pkeyopt', 'rsa_keygen_bits:' . ($options{bits} || 2048));
    $self->{file} = "$dir/key" . ++$keys;
    openssl('', 'genpkey', '-algorithm', @kind, '-out', $self->{file});
    return $self;
}

# The public key in PEM, and as a JSON Web Key.
sub pem { my ($self) = @_; return openssl('', 'pkey', '-in', $self->{file}, '-pubout'); }
sub der { my ($self) = @_; return openssl('', 'pkey', '-in', $self->{file}, '-pubout', '-outform', 'DER'); }

sub jwk
{
    my ($self, %members) = @_;
    my %jwk = (($self->{id} ? (kid => $self->{id}) : ()), use => 'sig', %members);
    if ($self->{family} eq 'HS') { @jwk{qw(kty k)} = ('oct', encode_base64url($self->{secret})); }
    elsif ($self->{family} eq 'Ed')
    {
        @jwk{qw(kty crv x)} = ('OKP', 'Ed25519', encode_base64url(substr $self->der, -32));
    }
    elsif ($self->{family} eq 'ES')
    {
        my (undef, $name, $bytes) = @{ $curves{ $self->{size} } };
        my $der = $self->der;
        @jwk{qw(kty crv x y)} =
          ('EC', $name, encode_base64url(substr $der, -2 * $bytes, $bytes), encode_base64url(substr $der, -$bytes));
    }
    else
    {
        my ($modulus) = openssl('', 'rsa', '-in', $self->{file}, '-noout', '-modulus') =~ /Modulus=(\S+)/;
        @jwk{qw(kty n e)} = ('RSA', encode_base64url(pack 'H*', $modulus), 'AQAB');
    }
    return \%jwk;
}

sub key_set { return $json->encode({ keys => [ map { ref $_ eq 'HASH' ? $_ : $_->jwk } @_ ] }); }

# A token. Header members and claims are given as hashes or, to be hostile, as text.
sub token
{
    my ($self, $claims, $header) = @_;
    $header = { alg => $self->{algorithm}, typ => 'JWT', ($self->{id} ? (kid => $self->{id}) : ()), %{ $header || {} } } unless defined $header && !ref $header;
    my $text = join '.', map { encode_base64url(ref $_ ? $json->encode($_) : $_) } $header, $claims;
    return "$text." . encode_base64url($self->sign($text));
}

sub sign
{
    my ($self, $text) = @_;
    my ($family, $size, $file) = @$self{qw(family size file)};
    if ($family eq 'HS')
    {
        no strict 'refs';
        return &{"Digest::SHA::hmac_sha$size"}($text, $self->{secret});
    }
    if ($family eq 'Ed')
    {
        spew("$dir/text", $text);
        return openssl('', 'pkeyutl', '-sign', '-rawin', '-in', "$dir/text", '-inkey', $file);
    }
    my @pss = $family eq 'PS' ? (qw(-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1)) : ();
    my $signature = openssl($text, 'dgst', "-sha$size", '-sign', $file, @pss);
    return $signature unless $family eq 'ES';
    my $bytes = $curves{$size}[2];
    my ($r, $s) = openssl($signature, 'asn1parse', '-inform', 'DER') =~ /INTEGER\s+:([0-9A-F]+)/g;
    return join '', map { substr(("\0" x $bytes) . pack('H*', length($_) % 2 ? "0$_" : $_), -$bytes) } $r, $s;
}

1;
