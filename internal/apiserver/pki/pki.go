// Package pki makes and keeps the certificates of one Monopod: a certificate authority and what it has signed, ECDSA
// P-256 throughout, as PEM files in one directory of mode 0700.
//
//	ca.crt                 the authority: signs servers and clients alike
//	server.crt             the API server's HTTPS
//	admin.crt              the administrator (O=system:masters)
//	node.crt               the agent as a client (CN=system:node:NAME, O=system:nodes)
//	agent.crt              the agent's HTTPS
//	apiserver-agent.crt    the API server as a client of the agents
//	controllers.crt        the controllers (CN=system:monopod:controllers), with the rights of their roles
//
// each with its .key of mode 0600. Beside them are the keys of service account tokens (package tokens).
//
// It guarantees that Ensure returns certificates that belong to the authority, bear the wanted names and stay valid for
// at least RenewBefore; whatever does not is issued anew. The authority itself is never replaced in silence: when its
// files are damaged or it has expired, Ensure says so and changes nothing, because replacing it locks every client out.
//
// A crash at any point leaves files that the next Ensure accepts or replaces: a key is written before its certificate,
// and a pair that does not belong together counts as missing.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// authorityLife and leafLife are for how long certificates are valid.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// RenewBefore is how long before its end a certificate is replaced.
	RenewBefore = 90 * 24 * time.Hour
	// clockSkew is how far a client's clock may be behind ours.
	clockSkew = 5 * time.Minute
)

// Config says for whom certificates are made.
type Config struct {
	// Dir is the directory; it is made when it is missing.
	Dir string
	// NodeName is the name of the node whose agent gets certificates.
	NodeName string
	// ServerAddresses are the names and addresses, beside those of loopback and of the service "kubernetes", under
	// which clients reach the API server.
	ServerAddresses []string
	// AgentAddresses are the names and addresses under which the agent is reached.
	AgentAddresses []string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// NodeUserPrefix is what the names of agents begin with, before that of their node.
const NodeUserPrefix = "system:node:"

// ControllersUser is who the controllers are.
const ControllersUser = "system:monopod:controllers"

// PKI is the authority and its certificates.
type PKI struct {
	// CAFile is the authority's certificate.
	CAFile string
	// CA is its content.
	CA []byte
	// Server and Agent are serving certificates, the others are clients'.
	Server, Admin, Node, Agent, APIServerAgent, Controllers Pair

	authority *authority
	now       func() time.Time
}

// Pair is a certificate and its key, in files and as PEM.
type Pair struct {
	CertFile, KeyFile string
	Cert, Key         []byte
}

// Ensure reads the certificates of cfg.Dir and issues those that are missing or no longer right. renewed names the
// files that were issued; it is empty when all were good.
func Ensure(cfg Config) (p *PKI, renewed []string, err error) {
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the directory of certificates: %w", err)
	}
	if err := os.Chmod(cfg.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("protect the directory of certificates: %w", err)
	}
	ca, made, err := ensureAuthority(cfg.Dir, now())
	if err != nil {
		return nil, nil, err
	}
	p = &PKI{CAFile: ca.file.cert(), CA: ca.pem, authority: ca, now: now}
	if made {
		renewed = append(renewed, ca.file.cert())
	}
	for _, w := range []struct {
		pair  *Pair
		name  string
		about subject
	}{
		{&p.Server, "server", serverSubject(cfg)},
		{&p.Admin, "admin", client("kubernetes-admin", "system:masters")},
		{&p.Node, "node", nodeSubject(cfg.NodeName)},
		{&p.Agent, "agent", agentSubject(cfg)},
		{&p.Controllers, "controllers", client(ControllersUser, "")},
		{&p.APIServerAgent, "apiserver-agent", client("kube-apiserver-kubelet-client", "system:masters")},
	} {
		file := files{dir: cfg.Dir, name: w.name}
		pair, issued, err := ca.ensure(file, w.about, now())
		if err != nil {
			return nil, nil, err
		}
		*w.pair = pair
		if issued {
			renewed = append(renewed, file.cert())
		}
	}
	return p, renewed, nil
}

// NodeClient issues a client certificate for the agent of a node, without storing it.
func (p *PKI) NodeClient(nodeName string) (Pair, error) {
	return p.authority.issue(nodeSubject(nodeName), p.now())
}

// Sign issues a certificate for a key that is somebody else's, as a template says: its subject, names and usages. It is valid for the given time, at most
// until the authority's own end, and is returned as PEM.
func (p *PKI) Sign(template *x509.Certificate, key crypto.PublicKey, life time.Duration) ([]byte, error) {
	return p.authority.signFor(template, key, life, p.now())
}

func serverSubject(cfg Config) subject {
	s := subject{commonName: "kube-apiserver", usage: x509.ExtKeyUsageServerAuth}
	s.addresses([]string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"127.0.0.1", "::1", cfg.NodeName,
	})
	s.addresses(cfg.ServerAddresses)
	return s
}

func agentSubject(cfg Config) subject {
	s := subject{commonName: NodeUserPrefix + cfg.NodeName, organization: "system:nodes", usage: x509.ExtKeyUsageServerAuth}
	s.addresses([]string{"localhost", "127.0.0.1", "::1", cfg.NodeName})
	s.addresses(cfg.AgentAddresses)
	return s
}

func nodeSubject(name string) subject { return client(NodeUserPrefix+name, "system:nodes") }

func client(user, group string) subject {
	return subject{commonName: user, organization: group, usage: x509.ExtKeyUsageClientAuth}
}

// subject is what a certificate is to say.
type subject struct {
	commonName, organization string
	dnsNames                 []string
	ips                      []net.IP
	usage                    x509.ExtKeyUsage
}

// addresses adds names and addresses, each once.
func (s *subject) addresses(all []string) {
	for _, a := range all {
		ip := net.ParseIP(a)
		switch {
		case a == "", ip != nil && ip.IsUnspecified():
		case ip != nil:
			if !slices.ContainsFunc(s.ips, ip.Equal) {
				s.ips = append(s.ips, ip)
			}
		case !slices.Contains(s.dnsNames, a):
			s.dnsNames = append(s.dnsNames, a)
		}
	}
}

// matches tells whether a certificate says what is wanted.
func (s *subject) matches(cert *x509.Certificate) bool {
	if cert.Subject.CommonName != s.commonName || !slices.Equal(cert.Subject.Organization, s.organizations()) ||
		!slices.Contains(cert.ExtKeyUsage, s.usage) {
		return false
	}
	for _, name := range s.dnsNames {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range s.ips {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func (s *subject) organizations() []string {
	if s.organization == "" {
		return nil
	}
	return []string{s.organization}
}

// files are the two files of a pair.
type files struct{ dir, name string }

func (f files) cert() string { return filepath.Join(f.dir, f.name+".crt") }
func (f files) key() string  { return filepath.Join(f.dir, f.name+".key") }

// errNoPair says that a pair is not there, or not whole.
var errNoPair = errors.New("no certificate and key that belong together")

// load reads a pair. A missing file, and a certificate whose key is another, are errNoPair.
func (f files) load() (Pair, *x509.Certificate, *ecdsa.PrivateKey, error) {
	pair := Pair{CertFile: f.cert(), KeyFile: f.key()}
	var err error
	if pair.Cert, err = os.ReadFile(pair.CertFile); err == nil {
		pair.Key, err = os.ReadFile(pair.KeyFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Pair{}, nil, nil, fmt.Errorf("%w: %w", errNoPair, err)
	}
	if err != nil {
		return Pair{}, nil, nil, err
	}
	cert, key, err := decode(pair)
	if err != nil {
		return Pair{}, nil, nil, fmt.Errorf("%w: %s: %w", errNoPair, pair.CertFile, err)
	}
	return pair, cert, key, nil
}
