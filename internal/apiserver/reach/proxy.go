package reach

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Backend says what of a pod or a node a proxied request is for.
type Backend struct {
	// Scheme is "http", "https", or "" for http.
	Scheme string
	// Port is decimal; "" is the scheme's.
	Port string
	// Path is where the request goes, as it was asked for after the subresource's name.
	Path string
}

// ParseBackend reads how a proxied request names its object: NAME, NAME:PORT or SCHEME:NAME:PORT.
func ParseBackend(id string) (name string, to Backend, err error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return "", Backend{}, apierrors.NewBadRequest(fmt.Sprintf("invalid request %q: it must be NAME, NAME:PORT, or SCHEME:NAME:PORT with the scheme http or https", id))
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return "", Backend{}, apierrors.NewBadRequest(fmt.Sprintf("invalid request %q: the port must be a number from 1 to 65535", id))
	}
	return name, Backend{Scheme: scheme, Port: port}, nil
}

// ProxyMethods are the methods of requests that are proxied.
func ProxyMethods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
}

// ProxyToPod serves what a pod serves. It is reached at the address that its node's agent has published for it, or, where
// it has its node's network, at the node's internal address; without credentials of the API server or of the client.
func (a *Agents) ProxyToPod(ctx context.Context, pod *corev1.Pod, to Backend, responder rest.Responder) (http.Handler, error) {
	return a.ProxyToPodAt(ctx, pod, "", to, responder)
}

// ProxyToPodAt is ProxyToPod at the one of the pod's addresses that somebody else has written down, by whom it may be made
// up: it must be one that an agent has published. An address that may not be dialled is a bad request, like a pod that has ended.
func (a *Agents) ProxyToPodAt(ctx context.Context, pod *corev1.Pod, at string, to Backend, responder rest.Responder) (http.Handler, error) {
	if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s has ended (%s): its address may be another pod's by now", pod.Name, phase))
	}
	published, allowed, transport := podIPs(pod), a.ofPod, a.pods
	if pod.Spec.HostNetwork {
		node, err := a.node(ctx, pod.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		published, allowed, transport = internalIPs(node), ofHost, a.hosts
	}
	if len(published) == 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no address (status.podIP, or its node's InternalIP when it has the host's network)", pod.Name))
	}
	ip, err := choose(published, at)
	if err == nil {
		err = allowed(ip)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s: %v", pod.Name, err))
	}
	return to.proxy(to.at(ip.String()), transport, responder), nil
}

// choose is the first address that is published for a pod, or the one of them that is wanted.
func choose(published []string, wanted string) (netip.Addr, error) {
	if wanted == "" {
		return netip.ParseAddr(published[0])
	}
	ip, err := netip.ParseAddr(wanted)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, p := range published {
		if own, err := netip.ParseAddr(p); err == nil && own.Unmap() == ip.Unmap() {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("address not allowed: %s is none of the pod's (%s)", wanted, strings.Join(published, ", "))
}

// ProxyToNode serves what the agent of a node serves, to which the API server shows who it is; or, at another port than
// the agent's, what its host does, without credentials.
func (a *Agents) ProxyToNode(ctx context.Context, nodeName string, to Backend, responder rest.Responder) (http.Handler, error) {
	agent, err := a.Agent(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	if to.Port == "" || to.Port == agent.Port {
		to.Scheme, to.Port = agent.Scheme, agent.Port
		return to.proxy(to.at(agent.Host), agent.Transport, responder), nil
	}
	// A name is looked at when it is dialled.
	if ip, err := netip.ParseAddr(agent.Host); err == nil {
		if err := ofHost(ip); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("node %s: %v", nodeName, err))
		}
	}
	return to.proxy(to.at(agent.Host), a.hosts, responder), nil
}

// at is the URL of the backend at a host.
func (b Backend) at(host string) *url.URL {
	location := &url.URL{Scheme: b.Scheme, Host: host, Path: utilnet.JoinPreservingTrailingSlash("", b.Path)}
	switch {
	case b.Port != "":
		location.Host = net.JoinHostPort(host, b.Port)
	case net.ParseIP(host) != nil && net.ParseIP(host).To4() == nil:
		location.Host = "[" + host + "]"
	}
	return location
}

func (b Backend) proxy(location *url.URL, transport http.RoundTripper, responder rest.Responder) http.Handler {
	handler := proxy.NewUpgradeAwareHandler(location, transport, true, false, proxy.NewErrorResponder(responder))
	handler.MaxBytesPerSec = unlimited
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// What the client has proved to the API server is not the backend's to use. The library has taken it away already,
		// unless somebody puts another authenticator in its place.
		req = req.Clone(req.Context())
		req.Header.Del("Authorization")
		handler.ServeHTTP(w, req)
	})
}

// podIPs are the addresses of a pod that has a network of its own.
func podIPs(pod *corev1.Pod) (ips []string) {
	if ip := pod.Status.PodIP; ip != "" {
		ips = append(ips, ip)
	}
	for _, p := range pod.Status.PodIPs {
		if p.IP != "" && p.IP != pod.Status.PodIP {
			ips = append(ips, p.IP)
		}
	}
	return ips
}

// internalIPs are the addresses of a node in its own network.
func internalIPs(node *corev1.Node) (ips []string) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			ips = append(ips, a.Address)
		}
	}
	return ips
}
