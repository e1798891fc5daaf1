// Package rds lets pooldriver sign in to Amazon RDS and Aurora with IAM: the password of
// each new connection is a token, which is good for 15 minutes.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	…
//	source := rds.Credentials(cfg, "shop.cluster-x.eu-central-1.rds.amazonaws.com:5432", "app")
//	db := sql.OpenDB(pooldriver.New(
//		"postgres://shop.cluster-x.eu-central-1.rds.amazonaws.com:5432/shop?sslmode=verify-full&sslrootcert=global-bundle.pem",
//		func(c *pooldriver.Config) { c.Credentials = source }))
//
// RDS accepts a token only under TLS. On MySQL and MariaDB the DSN also needs
// allowCleartextPasswords=true, because the token is sent as it is.
package rds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"

	"github.com/pooldriver/pooldriver"
)

// tokenLife is how long a token is good (BuildAuthToken's X-Amz-Expires).
const tokenLife = 15 * time.Minute

// Credentials returns a source of tokens for user at endpoint, "host:port". The host must be the
// name that RDS has given the instance or the cluster, not an alias: the token is signed for this
// name. For the same reason a DSN with several hosts cannot have a source.
//
// cfg gives the region and the keys that sign. A token is made without the network, unless the keys
// come from the network. A token ends after 15 minutes, or with its keys if they end sooner. Open
// connections live on when their token ends. pooldriver asks for the next token a minute before the
// token ends, and then replaces connections as they come back.
//
// The source is safe for concurrent use. Its errors hold no secret.
func Credentials(cfg aws.Config, endpoint, user string) pooldriver.CredentialSource {
	return func(ctx context.Context) (pooldriver.Credential, error) {
		if cfg.Credentials == nil || cfg.Region == "" {
			return pooldriver.Credential{}, errors.New("rds: the aws.Config has no credentials or no region; config.LoadDefaultConfig finds both")
		}
		keys, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return pooldriver.Credential{}, fmt.Errorf("rds: the keys to sign with: %w", err)
		}
		// The token is signed now or later, so it lasts at least until expires.
		expires := time.Now().Add(tokenLife)
		if keys.CanExpire && keys.Expires.Before(expires) {
			expires = keys.Expires
		}
		signed := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return keys, nil })
		token, err := auth.BuildAuthToken(ctx, endpoint, cfg.Region, user, signed)
		if err != nil {
			return pooldriver.Credential{}, fmt.Errorf("rds: a token for %s at %s: %w", user, endpoint, err)
		}
		return pooldriver.Credential{User: user, Password: token, Expires: expires}, nil
	}
}
