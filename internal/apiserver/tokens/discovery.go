package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// ConfigurationPath and KeySetPath are where the documents are served.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeySetPath        = "/openid/v1/jwks"
)

// keySetAge is for how long others may keep the documents. A key that begins to sign should have been in the set that long (sa-N.pub).
const keySetAge = time.Hour

// Documents are the handlers of the OpenID Connect documents, by their paths. baseURL is where this API server is reached by those who verify tokens, pods
// first of all: it is asked when somebody reads where the keys are.
func (t *Tokens) Documents(baseURL func() string) (map[string]http.Handler, error) {
	set, err := t.keys.set()
	if err != nil {
		return nil, err
	}
	return map[string]http.Handler{
		ConfigurationPath: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			configuration, err := json.Marshal(map[string]any{
				"issuer":                                t.issuers[0],
				"jwks_uri":                              baseURL() + KeySetPath,
				"response_types_supported":              []string{"id_token"},
				"subject_types_supported":               []string{"public"},
				"id_token_signing_alg_values_supported": []string{jwt.SigningMethodES256.Alg()},
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			document("application/json", configuration).ServeHTTP(w, r)
		}),
		KeySetPath: document("application/jwk-set+json", set),
	}, nil
}

// jwk is a public key as RFC 7517 and RFC 7518, section 6.2 have it.
type jwk struct {
	Use       string `json:"use"`
	KeyType   string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// set is the key set of all public keys.
func (k *Keys) set() ([]byte, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	for _, p := range k.public {
		point, err := p.key.ECDH()
		if err != nil {
			return nil, fmt.Errorf("key %s of service account tokens: %w", p.id, err)
		}
		// SEC 1, 2.3.3: 4, then both coordinates, each as long as the curve's field.
		both := point.Bytes()[1:]
		half := len(both) / 2
		set.Keys = append(set.Keys, jwk{
			Use: "sig", KeyType: "EC", ID: p.id, Curve: p.key.Params().Name, Algorithm: jwt.SigningMethodES256.Alg(),
			X: base64.RawURLEncoding.EncodeToString(both[:half]), Y: base64.RawURLEncoding.EncodeToString(both[half:]),
		})
	}
	return json.Marshal(set)
}

// document serves bytes that do not change while the server runs.
func document(contentType string, content []byte) http.Handler {
	sum := sha256.Sum256(content)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(keySetAge.Seconds())))
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
