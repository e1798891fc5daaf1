package testbed

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// certificateDir is where certificates and keys are in the container.
const certificateDir = "/certificates"

// Certificate is a kind of server certificate.
type Certificate string

// The certificates of a server made [WithTLSOnly], all signed by the authority
// its clients trust.
const (
	Good      Certificate = "good"
	Expired   Certificate = "expired"   // It was valid until yesterday.
	WrongHost Certificate = "wronghost" // It is for another host.
)

// authority signs a server's certificates. It lives as long as the server.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
	file        string // the certificate, for clients that want a file
	servers     map[Certificate]pair
}

type pair struct{ certificate, key []byte } // PEM

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "pooldriver testbed authority"},
		NotBefore:             time.Now().Add(-72 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	now := time.Now()
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	a.servers = map[Certificate]pair{}
	for kind, template := range map[Certificate]*x509.Certificate{
		Good:      {NotBefore: now.Add(-time.Hour), NotAfter: now.Add(12 * time.Hour), IPAddresses: loopback},
		Expired:   {NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-24 * time.Hour), IPAddresses: loopback},
		WrongHost: {NotBefore: now.Add(-time.Hour), NotAfter: now.Add(12 * time.Hour), DNSNames: []string{"elsewhere.invalid"}},
	} {
		template.Subject = pkix.Name{CommonName: "pooldriver testbed server"}
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if a.servers[kind], err = a.sign(template); err != nil {
			return nil, err
		}
	}
	return a, a.write()
}

func serial() *big.Int {
	n := make([]byte, 16)
	_, _ = rand.Read(n) // It never fails.
	n[0] &= 0x7f
	return new(big.Int).SetBytes(n)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.SerialNumber = serial()
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

func (a *authority) write() error {
	file, err := os.CreateTemp("", "pooldriver-testbed-*.crt")
	if err != nil {
		return err
	}
	a.file = file.Name()
	if _, err := file.Write(a.pem); err != nil {
		return err
	}
	return file.Close()
}

func (a *authority) remove() { _ = os.Remove(a.file) }

// containerFiles lists what the server finds in its certificateDir. The server
// starts with the good certificate.
func (a *authority) containerFiles() []testcontainers.ContainerFile {
	file := func(name string, content []byte) testcontainers.ContainerFile {
		return testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: certificateDir + "/" + name, FileMode: 0o644,
		}
	}
	files := []testcontainers.ContainerFile{
		file("ca.crt", a.pem),
		file("server.crt", a.servers[Good].certificate),
		file("server.key", a.servers[Good].key),
	}
	for kind, server := range a.servers {
		files = append(files, file(string(kind)+".crt", server.certificate), file(string(kind)+".key", server.key))
	}
	return files
}

// clientConfig trusts the authority and nobody else.
func (a *authority) clientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
}

// ClientTLS returns a configuration that trusts the server's authority. Only a
// server made [WithTLSOnly] has one.
func (s *Server) ClientTLS() *tls.Config { return s.clientTLS.Clone() }

// ClientCertificate makes a certificate for a user, with its key, in PEM. The serial number is that
// of the certificate.
func (s *Server) ClientCertificate(t testing.TB, user string) (certificate, key []byte, number *big.Int) {
	t.Helper()
	template := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		Subject: pkix.Name{CommonName: user}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	made, err := s.authority.sign(template)
	if err != nil {
		t.Fatal(err)
	}
	return made.certificate, made.key, template.SerialNumber
}

// RequireCertificate makes the server let the account in by a certificate for its user: PostgreSQL by
// nothing else, MariaDB and MySQL beside the password.
func (a Account) RequireCertificate(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := a.Server.Engine.requireCertificate(ctx, a); err != nil {
		t.Fatal(err)
	}
}

// UseCertificate makes the server present another certificate to connections
// made from now on.
func (s *Server) UseCertificate(t testing.TB, kind Certificate) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.useCertificate(ctx, kind); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) useCertificate(ctx context.Context, kind Certificate) error {
	err := execute(ctx, s.container, "sh", "-c",
		fmt.Sprintf("cd %[1]s && cat %[2]s.crt > server.crt && cat %[2]s.key > server.key", certificateDir, kind))
	if err != nil {
		return err
	}
	return s.Engine.reloadTLS(ctx, s, s.authority.servers[kind].certificate)
}
