package testbed

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// verifier returns what PostgreSQL keeps of a password for scram-sha-256, made with one
// iteration in place of 4,096 (RFC 5802). Both sides work through the iterations at each
// login, and the tests log in some ten thousand times.
func verifier(password string) string {
	sum := func(key, text []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(text)
		return h.Sum(nil)
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted := sum([]byte(password), append(salt, 0, 0, 0, 1))
	stored := sha256.Sum256(sum(salted, []byte("Client Key")))
	base := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", base(salt), base(stored[:]), base(sum(salted, []byte("Server Key"))))
}
