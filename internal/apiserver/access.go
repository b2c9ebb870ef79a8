package apiserver

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/apiserver/tokens"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// renewInterval is how often certificates are looked at while the server runs.
const renewInterval = 24 * time.Hour

// url is the API's address as clients on this host reach it.
func (s *Server) url() string {
	host := s.cfg.BindAddress
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.Port()))
}

// AdminConfig is a client configuration that may do everything, as long as the administrator's present certificate is valid: it is asked for anew.
func (s *Server) AdminConfig() *rest.Config { return s.configOf(*s.admin.Load()) }

// ControllersConfig is the client configuration of the controllers. Its clients use a renewed certificate by themselves.
func (s *Server) ControllersConfig() *rest.Config { return s.ownConfig(s.controllers) }

// Sign issues a certificate for a key of somebody else's, by a template, valid for the given time at most; it is PEM.
func (s *Server) Sign(template *x509.Certificate, key crypto.PublicKey, life time.Duration) ([]byte, error) {
	return s.pki.Sign(template, key, life)
}

// IssueForSecret makes the token of a service account that a secret holds. It has no end, and is good while the secret holds it.
func (s *Server) IssueForSecret(namespace, account string, uid types.UID, secret string) (string, error) {
	return s.tokens.IssueForSecret(namespace, tokens.Ref{Name: account, UID: uid}, secret)
}

// NodeConfig is the client configuration of the agent of the named node. The clients of this server's own node use a renewed certificate by themselves.
func (s *Server) NodeConfig(nodeName string) *rest.Config {
	if nodeName == s.cfg.NodeName {
		return s.ownConfig(s.agent)
	}
	issued, err := s.pki.NodeClient(nodeName)
	if err != nil {
		// Without a certificate the client gets 401 for every request: say why here.
		s.cfg.Log.Error("no credentials for an agent", "node", nodeName, "error", err)
	}
	return s.configOf(issued)
}

// AgentServingFiles are the files with which the agent of this node serves HTTPS, and the authority of its clients.
func (s *Server) AgentServingFiles() (cert, key, clientCA string) {
	return s.pki.Agent.CertFile, s.pki.Agent.KeyFile, s.pki.CAFile
}

// configOf has a certificate in it.
func (s *Server) configOf(pair pki.Pair) *rest.Config {
	return &rest.Config{Host: s.url(), TLSClientConfig: rest.TLSClientConfig{CAData: s.pki.CA, CertData: pair.Cert, KeyData: pair.Key}}
}

func (s *Server) ownConfig(client *ownClient) *rest.Config {
	config, err := client.config(s.url(), s.pki.CA)
	if err != nil {
		s.cfg.Log.Error("no credentials for a client of this process: it gets 401 for every request", "error", err)
		return s.configOf(pki.Pair{})
	}
	return config
}

// use has the server and the clients of this process use certificates from now on.
func (s *Server) use(p *pki.PKI) error {
	s.admin.Store(&p.Admin)
	return errors.Join(s.certificate.set(p.Server), s.controllers.set(p.Controllers), s.agent.set(p.Node))
}

// writeKubeconfig writes the administrator's kubeconfig, which holds all that a client needs.
func (s *Server) writeKubeconfig(admin pki.Pair) error {
	path := s.cfg.Kubeconfig
	if path == "" {
		return nil
	}
	const name = "monopod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.url(), CertificateAuthorityData: s.pki.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.Cert, ClientKeyData: admin.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	s.noteReplaced(path)
	if err := atomicfile.Write(path, raw, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// OwnsKubeconfig says whether a file is the administrator's kubeconfig that the API server with this data directory has written: it has that server's
// administrator and nobody else. A file that is not there, or is no kubeconfig, is not.
func OwnsKubeconfig(dataDir, path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	own, err := os.ReadFile(filepath.Join(dataDir, "pki", "admin.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	config, err := clientcmd.Load(raw)
	if err != nil || len(config.AuthInfos) != 1 || len(config.Clusters) != 1 {
		return false, nil //nolint:nilerr // it is somebody else's
	}
	for _, user := range config.AuthInfos {
		return bytes.Equal(bytes.TrimSpace(user.ClientCertificateData), bytes.TrimSpace(own)), nil
	}
	return false, nil
}

// noteReplaced warns of a kubeconfig of another cluster in whose place this server's comes.
func (s *Server) noteReplaced(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		return
	}
	for _, c := range config.Clusters {
		if !bytes.Equal(bytes.TrimSpace(c.CertificateAuthorityData), bytes.TrimSpace(s.pki.CA)) {
			s.cfg.Log.Warn("the kubeconfig of another cluster is replaced; a node of its own is to have one of its own (apiServer.kubeconfig)", "file", path, "cluster", c.Server)
		}
	}
}

// renewCertificates replaces certificates that come near their end while the server runs, and takes up those that somebody else has replaced.
func (s *Server) renewCertificates(ctx context.Context) error {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		renewed, err := s.renew()
		if err != nil {
			s.cfg.Log.Error("certificates could not be renewed; trying again tomorrow", "error", err)
		}
		if len(renewed) > 0 {
			s.cfg.Log.Info("certificates renewed; copies of the administrator's kubeconfig are to be replaced", "files", renewed)
		}
	}
}

// SetNodeAddresses has the certificates of the server and of the node's agent be for these names and addresses of the node from now on.
func (s *Server) SetNodeAddresses(addresses []string) error {
	s.nodeAddresses.Store(&addresses)
	renewed, err := s.renew()
	if len(renewed) > 0 {
		s.cfg.Log.Info("certificates made for the node's addresses", "addresses", addresses, "files", renewed)
	}
	return err
}

func (s *Server) renew() (renewed []string, err error) {
	s.renewMu.Lock()
	defer s.renewMu.Unlock()
	p, renewed, err := pki.Ensure(s.pkiConfig())
	if err != nil {
		return nil, err
	}
	err = s.use(p)
	if len(renewed) > 0 {
		err = errors.Join(err, s.writeKubeconfig(p.Admin))
	}
	return renewed, err
}
