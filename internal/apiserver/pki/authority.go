package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"time"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "EC PRIVATE KEY"
)

// authority signs certificates.
type authority struct {
	file files
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// ensureAuthority reads the authority, or makes it when there has never been one.
func ensureAuthority(dir string, now time.Time) (ca *authority, made bool, err error) {
	file := files{dir: dir, name: "ca"}
	pair, cert, key, err := file.load()
	if err == nil {
		if now.After(cert.NotAfter) {
			return nil, false, fmt.Errorf("the certificate authority %s expired on %s: move the directory %s away to have a new one made; every client then needs new credentials",
				file.cert(), cert.NotAfter.Format(time.DateOnly), dir)
		}
		return &authority{file: file, pem: pair.Cert, cert: cert, key: key}, false, nil
	}
	// A key without certificate is what a crash in the first start leaves; nothing has been signed with it.
	if _, serr := os.Lstat(file.cert()); !errors.Is(serr, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("the certificate authority in %s cannot be used: %w; restore ca.crt and ca.key from a backup, or move the directory away to have a new one made", dir, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "monopod-ca"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	pair, err = sign(template, nil, nil)
	if err != nil {
		return nil, false, fmt.Errorf("make the certificate authority: %w", err)
	}
	if cert, key, err = decode(pair); err != nil {
		return nil, false, err
	}
	if _, err := file.store(pair); err != nil {
		return nil, false, err
	}
	return &authority{file: file, pem: pair.Cert, cert: cert, key: key}, true, nil
}

// ensure reads a pair and issues it anew unless it is as wanted.
func (ca *authority) ensure(file files, about subject, now time.Time) (pair Pair, issued bool, err error) {
	pair, cert, _, err := file.load()
	if err == nil && about.matches(cert) && now.Add(RenewBefore).Before(cert.NotAfter) && cert.CheckSignatureFrom(ca.cert) == nil {
		return pair, false, nil
	}
	if err != nil && !errors.Is(err, errNoPair) {
		return Pair{}, false, err
	}
	if pair, err = ca.issue(about, now); err != nil {
		return Pair{}, false, err
	}
	pair, err = file.store(pair)
	return pair, true, err
}

// issue signs a new key for a subject. It never outlives the authority.
func (ca *authority) issue(about subject, now time.Time) (Pair, error) {
	end := now.Add(leafLife)
	if end.After(ca.cert.NotAfter) {
		end = ca.cert.NotAfter
	}
	pair, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: about.commonName, Organization: about.organizations()},
		DNSNames:    about.dnsNames,
		IPAddresses: about.ips,
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{about.usage},
	}, ca.cert, ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue a certificate for %q: %w", about.commonName, err)
	}
	return pair, nil
}

// signFor signs what somebody else has the key of.
func (ca *authority) signFor(template *x509.Certificate, key crypto.PublicKey, life time.Duration, now time.Time) ([]byte, error) {
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(life)
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	template.BasicConstraintsValid, template.IsCA = true, false
	var err error
	if template.SerialNumber, err = serial(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %q: %w", template.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der}), nil
}

// serial is a number for a certificate. RFC 5280, 4.1.2.2: positive, unique for each certificate of the authority, at most 20 octets.
func serial() (*big.Int, error) { return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) }

// sign makes a key and a certificate for it. Without a parent it is self-signed.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	if template.SerialNumber, err = serial(); err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return Pair{}, err
	}
	rawKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: rawKey}),
	}, nil
}

// store writes a pair, the key first, and returns it with the names of its files.
func (f files) store(pair Pair) (Pair, error) {
	pair.CertFile, pair.KeyFile = f.cert(), f.key()
	if err := atomicfile.Write(pair.KeyFile, pair.Key, 0o600); err != nil {
		return Pair{}, fmt.Errorf("write key: %w", err)
	}
	if err := atomicfile.Write(pair.CertFile, pair.Cert, 0o644); err != nil {
		return Pair{}, fmt.Errorf("write certificate: %w", err)
	}
	return pair, nil
}

// decode parses a pair and checks that the key is the certificate's.
func decode(pair Pair) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(pair.Cert)
	if block == nil || block.Type != certBlock {
		return nil, nil, fmt.Errorf("no PEM block %s", certBlock)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if block, _ = pem.Decode(pair.Key); block == nil || block.Type != keyBlock {
		return nil, nil, fmt.Errorf("the key has no PEM block %s", keyBlock)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, errors.New("the key is not the certificate's")
	}
	return cert, key, nil
}
