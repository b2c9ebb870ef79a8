package podcertificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/kit/failpoint"
)

// The authority is in a Secret, so that all who share an API's store have the same, and a copy of the store has it. It signs nothing that the API server knows: its
// clients are others.
const (
	secretNamespace = metav1.NamespaceSystem
	secretName      = "monopod-pod-identity"
	// formerKey is the certificate of the authority before, while there may be certificates of it.
	formerKey = "former.crt"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// renewBefore is when an authority signs no more: the longest life of a pod's certificate, and a day.
	renewBefore = 92 * 24 * time.Hour
)

// authority signs certificates of pods.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	// trusted are the certificates by which what it has signed is known, as PEM.
	trusted []byte
}

// readAuthority is the authority that a Secret has. An error says that there is none in it that can sign.
func readAuthority(secret *corev1.Secret, now time.Time) (*authority, error) {
	cert, err := parseCertificate(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", corev1.TLSCertKey, err)
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSPrivateKeyKey])
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", corev1.TLSPrivateKeyKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", corev1.TLSPrivateKeyKey, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	if now.After(cert.NotAfter.Add(-renewBefore)) {
		return nil, fmt.Errorf("it ends on %s", cert.NotAfter.Format(time.DateOnly))
	}
	trusted := certificatePEM(cert)
	if former, err := parseCertificate(secret.Data[formerKey]); err == nil && now.Before(former.NotAfter) && !former.Equal(cert) {
		trusted = append(trusted, certificatePEM(former)...)
	}
	return &authority{cert: cert, key: key, trusted: trusted}, nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM block CERTIFICATE")
	}
	return x509.ParseCertificate(block.Bytes)
}

func certificatePEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// newAuthority makes one, as the data of a Secret. What it takes the place of stays trusted.
func newAuthority(old map[string][]byte, now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: secretName}, NotBefore: now.Add(-begun), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
	if former, err := parseCertificate(old[corev1.TLSCertKey]); err == nil {
		data[formerKey] = certificatePEM(former)
	}
	return data, nil
}

// serial is a number for a certificate. RFC 5280, 4.1.2.2: positive, unique for each certificate of the authority, at most 20 octets.
func serial() (*big.Int, error) { return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) }

// sign issues a certificate for a key, as PEM.
func (a *authority) sign(template *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	var err error
	if template.SerialNumber, err = serial(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// ensureAuthority reads the authority, and makes one where there is none that can sign. Of two who make one the first counts.
func ensureAuthority(ctx context.Context, client kubernetes.Interface, now time.Time) (a *authority, made bool, err error) {
	secrets := client.CoreV1().Secrets(secretNamespace)
	secret, err := secrets.Get(ctx, secretName, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, false, err
	}
	var old map[string][]byte
	if !missing {
		if a, err := readAuthority(secret, now); err == nil {
			return a, false, nil
		}
		old = secret.Data
	}
	data, err := newAuthority(old, now)
	if err != nil {
		return nil, false, fmt.Errorf("make an authority for pods: %w", err)
	}
	if err := failpoint.Hit("controllers/podcertificates/authority"); err != nil {
		return nil, false, err
	}
	if missing {
		secret, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secretNamespace, Name: secretName}, Type: corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	} else {
		secret = secret.DeepCopy()
		secret.Data = data
		secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, false, fmt.Errorf("write the authority for pods into the secret %s/%s: %w", secretNamespace, secretName, err)
	}
	a, err = readAuthority(secret, now)
	return a, err == nil, err
}
