package tokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// Keys are the keys of service account tokens, as the files of a directory: sa-N.key is a private key (PEM, ECDSA P-256), sa-N.pub a public one. That of
// the highest number signs, among the private ones; all of them verify.
type Keys struct {
	signing *ecdsa.PrivateKey
	// signer is the ID of signing.
	signer string
	// public are all of them, the newest first.
	public []publicKey
}

type publicKey struct {
	id  string
	key *ecdsa.PublicKey
}

// EnsureKeys reads the keys of a directory, and makes the first one where there is none. made is its file; empty: none was made.
func EnsureKeys(dir string) (k *Keys, made string, err error) {
	files, err := keyFiles(dir)
	if err != nil {
		return nil, "", err
	}
	if !slices.ContainsFunc(files, func(f keyFile) bool { return f.private }) {
		first := keyFile{number: 1, private: true}
		if len(files) > 0 {
			first.number = files[0].number + 1
		}
		made = filepath.Join(dir, first.name())
		if err := makeKey(made); err != nil {
			return nil, "", fmt.Errorf("make the key of service account tokens: %w", err)
		}
		files = slices.Insert(files, 0, first)
	}
	k = &Keys{}
	for _, f := range files {
		if err := k.load(dir, f); err != nil {
			return nil, "", fmt.Errorf("key of service account tokens %s: %w", filepath.Join(dir, f.name()), err)
		}
	}
	return k, made, nil
}

// keyFile is sa-N.key or sa-N.pub.
type keyFile struct {
	number  int
	private bool
}

const (
	keyPrefix     = "sa-"
	privateSuffix = ".key"
	publicSuffix  = ".pub"
)

func (f keyFile) name() string {
	suffix := publicSuffix
	if f.private {
		suffix = privateSuffix
	}
	return keyPrefix + strconv.Itoa(f.number) + suffix
}

// keyFiles are those of a directory, the newest first.
func keyFiles(dir string) (files []keyFile, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keys of service account tokens: %w", err)
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), keyPrefix)
		number, private := strings.CutSuffix(rest, privateSuffix)
		if !private {
			var public bool
			if number, public = strings.CutSuffix(rest, publicSuffix); !public {
				continue
			}
		}
		if !ours {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("key of service account tokens %s: its name must be %sNUMBER%s or %sNUMBER%s; rename it, or move it out of the directory",
				filepath.Join(dir, e.Name()), keyPrefix, privateSuffix, keyPrefix, publicSuffix)
		}
		files = append(files, keyFile{number: n, private: private})
	}
	slices.SortStableFunc(files, func(a, b keyFile) int { return b.number - a.number })
	return files, nil
}

func makeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (k *Keys) load(dir string, f keyFile) error {
	path := filepath.Join(dir, f.name())
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var public *ecdsa.PublicKey
	var private *ecdsa.PrivateKey
	if f.private {
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		if private, err = parsePrivate(raw); err != nil {
			return err
		}
		public = &private.PublicKey
	} else if public, err = parsePublic(raw); err != nil {
		return err
	}
	if public.Curve != elliptic.P256() {
		return fmt.Errorf("it is of the curve %s: use P-256 (prime256v1)", public.Curve.Params().Name)
	}
	id, err := keyID(public)
	if err != nil {
		return err
	}
	if k.signing == nil && private != nil {
		k.signing, k.signer = private, id
	}
	if !slices.ContainsFunc(k.public, func(p publicKey) bool { return p.id == id }) {
		k.public = append(k.public, publicKey{id, public})
	}
	return nil
}

// keyID is a key's ID in tokens and in the key set: the hash of its PKIX form, as Kubernetes has it.
func keyID(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// parsePrivate reads the first private key of a PEM file, in the form of SEC 1 or PKCS #8. OpenSSL writes the curve's parameters before it.
func parsePrivate(raw []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			key, ok := parsed.(*ecdsa.PrivateKey)
			if !ok {
				return nil, fmt.Errorf("it is a %T: use an ECDSA key of the curve P-256", parsed)
			}
			return key, nil
		}
	}
	return nil, errors.New("it has no PEM block EC PRIVATE KEY or PRIVATE KEY; restore it from a backup, or remove it: tokens that it has signed then end")
}

func parsePublic(raw []byte) (*ecdsa.PublicKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("it has no PEM block PUBLIC KEY")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("it is a %T: use an ECDSA key of the curve P-256", parsed)
	}
	return key, nil
}
