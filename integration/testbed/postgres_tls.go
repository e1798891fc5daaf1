package testbed

import (
	"bytes"
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

// waitPresented returns when the server presents the certificate: PostgreSQL
// reloads its configuration some time after it was told to.
func waitPresented(ctx context.Context, addr string, certificate []byte) error {
	want, _ := pem.Decode(certificate)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := presented(ctx, addr)
		if err == nil && bytes.Equal(got, want.Bytes) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("testbed: the server does not present its new certificate: %w", errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// presented returns the certificate the server presents, in DER.
func presented(ctx context.Context, addr string) ([]byte, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
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
