package rds

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	endpoint  = "shop.x.eu-central-1.rds.amazonaws.com:5432"
	accessKey = "AKIDEXAMPLE"
	secretKey = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
)

// keys are static, as no cloud is needed to sign.
func keys(change func(*aws.Credentials)) aws.Config {
	c := aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: "session-of-a-role"}
	if change != nil {
		change(&c)
	}
	return aws.Config{Region: "eu-central-1", Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return c, nil })}
}

func TestATokenIsAURLThatWasSignedForTheUser(t *testing.T) {
	cred, err := Credentials(keys(nil), endpoint, "app")(t.Context())
	require.NoError(t, err)
	require.Equal(t, "app", cred.User)
	token, err := url.Parse("https://" + cred.Password)
	require.NoError(t, err)
	require.Equal(t, endpoint, token.Host)
	query := token.Query()
	require.Equal(t, "connect", query.Get("Action"))
	require.Equal(t, "app", query.Get("DBUser"))
	require.Equal(t, "900", query.Get("X-Amz-Expires"))
	require.Regexp(t, "^"+accessKey+`/\d{8}/eu-central-1/rds-db/aws4_request$`, query.Get("X-Amz-Credential"))
	require.Equal(t, "session-of-a-role", query.Get("X-Amz-Security-Token"))
	require.Len(t, query.Get("X-Amz-Signature"), 64)
	require.NotContains(t, cred.Password, secretKey)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", cred, cred, cred, cred), "X-Amz-Signature")
}

func TestATokenEndsAfter15MinutesOrWithItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for want, cfg := range map[time.Duration]aws.Config{
			15 * time.Minute: keys(nil),
			4 * time.Minute: keys(func(c *aws.Credentials) {
				c.CanExpire, c.Expires = true, now.Add(4*time.Minute)
			}),
		} {
			cred, err := Credentials(cfg, endpoint, "app")(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, cred.Expires.Sub(now))
		}
		later := keys(func(c *aws.Credentials) { c.CanExpire, c.Expires = true, now.Add(time.Hour) })
		cred, err := Credentials(later, endpoint, "app")(t.Context())
		require.NoError(t, err)
		require.Equal(t, 15*time.Minute, cred.Expires.Sub(now))
	})
}

func TestWhatIsMissingIsAnErrorWithoutASecret(t *testing.T) {
	denied := errors.New("the role cannot be assumed")
	for want, source := range map[string]pooldriver.CredentialSource{
		"rds: the aws.Config has no credentials or no region": Credentials(aws.Config{Region: "eu-central-1"}, endpoint, "app"),
		"no credentials or no region":                         Credentials(aws.Config{Credentials: keys(nil).Credentials}, endpoint, "app"),
		"rds: a token for app at shop.x: ":                    Credentials(keys(nil), "shop.x", "app"),
		"rds: the keys to sign with: " + denied.Error(): Credentials(aws.Config{Region: "eu-central-1",
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, denied })}, endpoint, "app"),
	} {
		cred, err := source(t.Context())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), secretKey)
		require.Zero(t, cred)
	}
}

// TestTheTokenIsThePasswordAndIsNeverShown has a server ask for the password, and refuse.
func TestTheTokenIsThePasswordAndIsNeverShown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	passwords := make(chan string, 10)
	serving.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			refuse(nc, passwords)
		}
	})
	defer serving.Wait()
	defer listener.Close()

	var log bytes.Buffer
	db := sql.OpenDB(pooldriver.New("postgres://"+endpoint+"/shop?sslmode=disable", func(c *pooldriver.Config) {
		c.Credentials = Credentials(keys(nil), endpoint, "app")
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, listener.Addr().String())
		}
	}))
	err = db.PingContext(t.Context())
	require.ErrorContains(t, err, "28P01")
	require.NoError(t, db.Close())
	token := <-passwords
	require.Contains(t, token, "X-Amz-Signature=")
	for _, shown := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err), log.String()} {
		require.NotContains(t, shown, "X-Amz-Signature")
		require.NotContains(t, shown, secretKey)
	}
}

// refuse is a server that asks for a password and refuses it in words that repeat it.
func refuse(nc net.Conn, passwords chan<- string) {
	defer nc.Close()
	b := pgproto3.NewBackend(nc, nc)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationCleartextPassword{})
	if b.Flush() != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	msg, err := b.Receive()
	if err != nil {
		return
	}
	password := msg.(*pgproto3.PasswordMessage).Password
	passwords <- password
	b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "PAM refuses " + password})
	_ = b.Flush()
}
