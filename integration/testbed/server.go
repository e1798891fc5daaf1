package testbed

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// startTimeout bounds the start of a server, its initialisation included.
const startTimeout = 2 * time.Minute

// Engine is a kind of server: [Postgres] or [MySQL].
type Engine interface {
	String() string // The DSN's scheme.

	image() (variable, official string)
	port() string
	environment() (env map[string]string, dataDir string)
	command(options) []string
	listen(port string) (arguments []string)
	openAdmin(s *Server, database string) (*sql.DB, error)
	openAccount(a Account, parameters []string) (*sql.DB, error)
	transport(s *Server) (parameters string)
	create(ctx context.Context, admin *sql.DB, a Account) error
	drop(ctx context.Context, admin *sql.DB, a Account) error
	limit(ctx context.Context, admin *sql.DB, a Account, connections int) error
	enableTLS(ctx context.Context, s *Server) error
	reloadTLS(ctx context.Context, s *Server, certificate []byte) error
	requireCertificate(ctx context.Context, a Account) error
	transactions(ctx context.Context, admin *sql.DB, a Account) ([]Transaction, error)
	queries() queries
	replication() replication
}

type options struct {
	arguments      []string
	maxConnections int
	restartable    bool
	tlsOnly        bool
	network        *Network
	alias          string
	hostNetwork    bool
}

// Option is a property of a server of a test's own.
type Option func(*options)

// WithArguments adds arguments to the server's command line.
func WithArguments(arguments ...string) Option {
	return func(o *options) { o.arguments = append(o.arguments, arguments...) }
}

// WithMaxConnections sets the server's connection limit. The connections the
// server reserves for administrators are not counted in n, so that witnesses get
// in when users do not.
func WithMaxConnections(n int) Option { return func(o *options) { o.maxConnections = n } }

// WithRestart keeps the data on disk, so that they survive [Server.Stop] and
// [Server.Kill]. It starts more slowly than the default, which is memory.
func WithRestart() Option { return func(o *options) { o.restartable = true } }

// WithTLSOnly makes the server refuse connections without TLS. It starts with a
// good certificate; see [Server.UseCertificate].
func WithTLSOnly() Option { return func(o *options) { o.tlsOnly = true } }

// WithNetwork puts the server into a network, too, where others find it by its
// alias and the engine's own port.
func WithNetwork(n *Network, alias string) Option {
	return func(o *options) { o.network, o.alias = n, alias }
}

// WithHostNetwork has the server listen on 127.0.0.1 itself, as all do that are in no other
// network, where Docker can do that.
func WithHostNetwork() Option { return func(o *options) { o.hostNetwork = true } }

// Server is a running database server.
type Server struct {
	Engine Engine
	Addr   string // host:port on 127.0.0.1, the same after a restart

	container *testcontainers.DockerContainer
	options   options
	authority *authority // nil without TLS
	clientTLS *tls.Config

	mu    sync.Mutex
	admin *sql.DB // opened on first use
}

// New starts a server. The caller ends it with [Server.Terminate].
func New(ctx context.Context, engine Engine, opts ...Option) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s := &Server{Engine: engine}
	for _, option := range opts {
		option(&s.options)
	}
	var files []testcontainers.ContainerFile
	if s.options.tlsOnly {
		var err error
		if s.authority, err = newAuthority(); err != nil {
			return nil, err
		}
		files = s.authority.containerFiles()
	}
	var err error
	if s.container, s.Addr, err = runContainer(ctx, engine, s.options, files); err != nil {
		return nil, err
	}
	if s.authority != nil {
		s.clientTLS = s.authority.clientConfig()
		err = registerMySQLTLS(s)
	}
	if err == nil {
		err = s.waitReady(ctx)
	}
	if err == nil && s.options.tlsOnly {
		err = engine.enableTLS(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; log: %s; %w", err, lastLog(ctx, s.container), s.Terminate())
	}
	return s, nil
}

// Start starts a server that ends with the test.
func Start(t testing.TB, engine Engine, opts ...Option) *Server {
	t.Helper()
	s, err := New(t.Context(), engine, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Terminate(); err != nil {
			t.Errorf("terminate %s: %v", engine, err)
		}
	})
	return s
}

// Admin returns the administrator's pool, with the bare driver.
func (s *Server) Admin() (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		admin, err := s.Engine.openAdmin(s, "")
		if err != nil {
			return nil, err
		}
		admin.SetMaxIdleConns(4)
		s.admin = admin
	}
	return s.admin, nil
}

// waitReady returns when a query is answered. A published port alone says
// nothing: Docker's proxy accepts before the server listens.
func (s *Server) waitReady(ctx context.Context) error {
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		one := 0
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		last := admin.QueryRowContext(attempt, "SELECT 1").Scan(&one)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("testbed: %s on %s answers no query: %w", s.Engine, s.Addr, last)
		case <-tick.C:
		}
	}
}

// Stop shuts the server down in an orderly way. Only a server made
// [WithRestart] can be started again.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	patience := 20 * time.Second
	if err := s.container.Stop(context.Background(), &patience); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server's processes with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := kill(context.Background(), s.container); err != nil {
		t.Fatal(err)
	}
}

// Start starts the server again after Stop or Kill, on the same port, and
// returns when it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if !s.options.restartable {
		t.Fatal("testbed: only a server made WithRestart keeps its data")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.container.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.waitReady(ctx); err != nil {
		t.Fatalf("%v; log: %s", err, lastLog(ctx, s.container))
	}
}

// Restart stops the server and starts it again.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.Start(t)
}

// Confine leaves the server these processors, as Linux lists them ("0-1").
func (s *Server) Confine(ctx context.Context, processors string) error {
	return confine(ctx, s.container, processors)
}

// ReadFile returns a file of the server's container, such as its log. The data directory may be in memory, whose
// files cannot be had.
func (s *Server) ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	file, err := s.container.CopyFileFromContainer(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Terminate removes the server and its data.
func (s *Server) Terminate() error {
	s.closeAdmin()
	if s.authority != nil {
		s.authority.remove()
	}
	return s.container.Terminate(context.Background(), testcontainers.StopTimeout(0))
}

func (s *Server) closeAdmin() {
	s.mu.Lock()
	admin := s.admin
	s.mu.Unlock()
	if admin != nil {
		_ = admin.Close() // The server goes anyway.
	}
}
