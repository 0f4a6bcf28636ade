#!/bin/sh
# Makes the certificates of these tests anew, in this folder: an authority, and what it signed for
# localhost and 127.0.0.1, for another host, and for localhost until the year 2001.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
from=20000101000000Z until=21000101000000Z

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

sign() { # name, subject alternative names, end
    key "$1.key.pem"
    openssl req -new -key "$1.key.pem" -subj "/CN=$1" -out "$work/$1.csr"
    printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "$2" > "$work/$1.ext"
    openssl ca -batch -notext -config "$work/ca.cnf" -extfile "$work/$1.ext" \
        -startdate "$from" -enddate "$3" -in "$work/$1.csr" -out "$1.pem" 2> /dev/null
}

cat > "$work/ca.cnf" << END
[ca]
default_ca = ours
[ours]
dir = $work
database = $work/index
new_certs_dir = $work
rand_serial = yes
default_md = sha256
policy = any
certificate = $PWD/authority.pem
private_key = $work/authority.key
unique_subject = no
[any]
commonName = supplied
END
: > "$work/index"
key "$work/authority.key"
openssl req -new -key "$work/authority.key" -subj "/CN=authority of the tests" -out "$work/authority.csr"
printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n' > "$work/authority.ext"
openssl ca -batch -notext -selfsign -config "$work/ca.cnf" -keyfile "$work/authority.key" \
    -extfile "$work/authority.ext" -startdate "$from" -enddate "$until" \
    -in "$work/authority.csr" -out authority.pem 2> /dev/null
sign server "DNS:localhost,IP:127.0.0.1" "$until"
sign other-host "DNS:elsewhere.invalid" "$until"
sign expired "DNS:localhost,IP:127.0.0.1" 20010101000000Z
