// Package encryption keeps secrets unreadable in the store: what is written to etcd is encrypted by the providers of k8s.io/apiserver, which a file of the
// kind EncryptionConfiguration (apiserver.config.k8s.io/v1) names. At the first start such a file is made, with a key of its own, for the resource secrets.
//
// It guarantees:
//   - the key is on the disk before anything is encrypted with it;
//   - what was stored before, unencrypted or with an older key, stays readable as long as the file names its provider, and is written anew when the file
//     has changed (Applied, Apply).
package encryption

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

const (
	// name is the file that is made where no other one is named; appliedName holds the hash of the one that all objects have been written with.
	name        = "encryption.yaml"
	appliedName = "encryption.applied"
)

// Encryption is what encrypts which resources.
type Encryption struct {
	transformers map[schema.GroupResource]value.Transformer
	file         string
	hash         string
	applied      string
}

// Open reads the configuration in the named file, or, where none is named, the one in dir, which is made when there is none yet. dir is where the secrets
// of the server are.
func Open(ctx context.Context, dir, file string) (*Encryption, error) {
	if file == "" {
		file = filepath.Join(dir, name)
		if err := ensure(file); err != nil {
			return nil, fmt.Errorf("make the key that secrets are stored with: %w", err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration of encryption: %w", err)
	}
	const reload = false // no watcher of the file: a change counts from the next start on
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, reload, "monopod")
	if err != nil {
		return nil, fmt.Errorf("configuration of encryption %s: %w; it must be an EncryptionConfiguration of apiserver.config.k8s.io/v1", file, err)
	}
	sum := sha256.Sum256(raw)
	return &Encryption{transformers: loaded.Transformers, file: file, hash: hex.EncodeToString(sum[:]), applied: filepath.Join(dir, appliedName)}, nil
}

// ensure makes the configuration where there is none.
func ensure(file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, 32) // secretbox: XSalsa20 and Poly1305
	if _, err := rand.Read(key); err != nil {
		return err
	}
	return atomicfile.Write(file, fmt.Appendf(nil, configuration, base64.StdEncoding.EncodeToString(key)), 0o600)
}

const configuration = `# The key that secrets are stored with. Whoever loses it loses them; whoever has it and a copy of the store can read them.
# To change it: put a new key before the old one, restart, and remove the old one when the log says that all objects are
# encrypted with the first provider. A key: head -c 32 /dev/urandom | base64
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - {name: key1, secret: %s}
  - identity: {} # reads what was stored before there was a key
`

// File is where the configuration is.
func (e *Encryption) File() string { return e.file }

// Transformer is what encrypts a resource; nil: nothing does.
func (e *Encryption) Transformer(resource schema.GroupResource) value.Transformer {
	return encryptionconfig.StaticTransformers(e.transformers).TransformerForResource(resource)
}

// Applied reports whether all objects have been written with this configuration.
func (e *Encryption) Applied() bool {
	raw, err := os.ReadFile(e.applied)
	return err == nil && bytes.Equal(bytes.TrimSpace(raw), []byte(e.hash))
}

// Apply notes that they have.
func (e *Encryption) Apply() error {
	return atomicfile.Write(e.applied, []byte(e.hash+"\n"), 0o600)
}

// Encrypts reports whether the configuration names a resource.
func (e *Encryption) Encrypts(resource schema.GroupResource) bool {
	for _, named := range []schema.GroupResource{resource, {Group: resource.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
		if e.transformers[named] != nil {
			return true
		}
	}
	return false
}
