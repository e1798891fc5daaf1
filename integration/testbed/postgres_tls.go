package testbed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// sslRequest is PostgreSQL's message that asks for TLS: its length, then the
// code 80877103 (protocol manual, "SSLRequest").
var sslRequest = []byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f}

// presentWithin bounds one question for the certificate.
const presentWithin = 5 * time.Second

// waitPresented calls reload until the server presents the certificate, once a
// second: PostgreSQL reloads its configuration some time after it was told to.
func waitPresented(ctx context.Context, addr string, certificate []byte, reload func(context.Context) error) error {
	want, _ := pem.Decode(certificate)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var told time.Time
	var seen error // what the last whole look at the server showed
	for {
		if time.Since(told) > time.Second {
			if err := reload(ctx); err != nil {
				return errors.Join(err, seen)
			}
			told = time.Now()
		}
		got, err := presented(ctx, addr)
		if err == nil && bytes.Equal(got, want.Bytes) {
			return nil
		}
		if ctx.Err() == nil {
			seen = cmp.Or(err, errors.New("it presents another one"))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("testbed: the server does not present its new certificate: %w", errors.Join(seen, ctx.Err()))
		case <-tick.C:
		}
	}
}

// presented returns the certificate the server presents, in DER.
func presented(ctx context.Context, addr string) ([]byte, error) {
	dialer := net.Dialer{Timeout: presentWithin}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(presentWithin)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(sslRequest); err != nil {
		return nil, err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	if answer[0] != 'S' {
		return nil, fmt.Errorf("testbed: the server answers %q to a request for TLS", answer)
	}
	// Only the certificate is wanted, a bad one too.
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0].Raw, nil
}
