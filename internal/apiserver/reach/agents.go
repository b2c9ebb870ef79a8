package reach

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// NodeGetter reads Node objects.
type NodeGetter interface {
	Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error)
}

// Config says how to reach agents.
type Config struct {
	Nodes NodeGetter
	// CA is the authority (PEM) that has signed the agents' certificates.
	CA []byte
	// ClientCertFile and ClientKeyFile are the API server's credentials. They are read for each connection, so that
	// renewed ones are used.
	ClientCertFile, ClientKeyFile string
	// Dial opens connections; nil: as this host does.
	Dial Dial
	// OwnAddresses are the addresses of the API server's host, which are no pod's; nil: those of its interfaces.
	OwnAddresses func() ([]netip.Addr, error)
}

// Agents finds the agents of nodes, and what else is to be reached by what they publish.
type Agents struct {
	cfg   Config
	roots *x509.CertPool
	// hosts leads to other ports of nodes than their agents', pods to pods with a network of their own.
	hosts, pods *http.Transport
	ofPod       rule
}

// New makes Agents; nothing is connected before a request needs it.
func New(cfg Config) (*Agents, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cfg.CA) {
		return nil, errors.New("the certificate authority of the agents has no PEM certificate")
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	if cfg.OwnAddresses == nil {
		cfg.OwnAddresses = ownAddresses
	}
	ofPod := ofPod(cfg.OwnAddresses)
	return &Agents{
		cfg: cfg, roots: roots, ofPod: ofPod,
		hosts: rule(ofHost).withoutCredentials(cfg.Dial), pods: ofPod.withoutCredentials(cfg.Dial),
	}, nil
}

// transport leads to the agent of the named node and nobody else. That a certificate of the authority has the right
// address is not enough: the API server's own has, where a node publishes the API server's address, and the API server
// would then be its own administrator.
func (a *Agents) transport(nodeName string) *http.Transport {
	t := a.client()
	t.TLSClientConfig.VerifyConnection = func(state tls.ConnectionState) error {
		subject := state.PeerCertificates[0].Subject
		if subject.CommonName != pki.NodeUserPrefix+nodeName || !slices.Contains(subject.Organization, user.NodesGroup) {
			return fmt.Errorf("who answers as the agent of node %s is %s: its certificate must be that of %s in %s",
				nodeName, subject, pki.NodeUserPrefix+nodeName, user.NodesGroup)
		}
		return nil
	}
	return t
}

// unverified leads to whoever answers. The API server still tells who it is, as agents ask; a handshake is of one connection alone, so that nobody can pass it on.
func (a *Agents) unverified() *http.Transport {
	t := a.client()
	t.TLSClientConfig.InsecureSkipVerify = true
	return t
}

func (a *Agents) client() *http.Transport {
	return &http.Transport{
		DialContext: a.cfg.Dial,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    a.roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(a.cfg.ClientCertFile, a.cfg.ClientKeyFile)
				if err != nil {
					return nil, fmt.Errorf("credentials of the API server for agents: %w", err)
				}
				return &pair, nil
			},
		},
		TLSHandshakeTimeout: dialTimeout,
		// Logs and streams are not worth to be kept: an idle connection costs a goroutine on both sides.
		DisableKeepAlives: true,
	}
}

// Agent returns the way to the agent of the named node. Its error is an API error (NotFound for a node that does not
// exist, ServiceUnavailable for one that has published no address) and is for the client to see.
func (a *Agents) Agent(ctx context.Context, nodeName string) (Agent, error) {
	node, err := a.node(ctx, nodeName)
	if err != nil {
		return Agent{}, err
	}
	host, err := address(node)
	if err != nil {
		return Agent{}, apierrors.NewServiceUnavailable(err.Error())
	}
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		return Agent{}, apierrors.NewServiceUnavailable(fmt.Sprintf("node %s has published no port of its agent (status.daemonEndpoints.kubeletEndpoint)", nodeName))
	}
	return Agent{Scheme: "https", Host: host, Port: strconv.Itoa(port), Transport: a.transport(nodeName), Unverified: a.unverified()}, nil
}

// node reads the Node object.
func (a *Agents) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := resource.Get[*corev1.Node](ctx, a.cfg.Nodes, "node", name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The getter's own error would name the resource of the request.
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return node, err
}

// address chooses the node's address for the API server: an address before a name, which would have to be resolved.
func address(node *corev1.Node) (string, error) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind && a.Address != "" {
				return a.Address, nil
			}
		}
	}
	return "", fmt.Errorf("node %s has published no address (status.addresses)", node.Name)
}
