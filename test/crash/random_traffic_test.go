package crash

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/test/harness"
)

// tally is how often what has happened.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func newTally() *tally { return &tally{of: map[string]int{}} }

func (t *tally) add(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[what] += n
}

func (t *tally) set(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[what] = n
}

func (s *storm) summary() string {
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	all := []string{fmt.Sprintf("executor handed over %d", s.handed)}
	for _, what := range slices.Sorted(maps.Keys(s.traffic.of)) {
		all = append(all, fmt.Sprintf("%s %d", what, s.traffic.of[what]))
	}
	return strings.Join(all, ", ")
}

// peer is a pod in whose network namespace the test's own sockets are: they are not killed with anybody.
type peer struct {
	ip    netip.Addr
	netns string
}

// An attempt that hears nothing is given up after this time, where that is what is expected or allowed.
const attempt = 300 * time.Millisecond

// talk begins all connections, datagrams and questions.
func (s *storm) talk() {
	s.Helper()
	s.peers, s.names = map[string]*peer{}, map[string]string{}
	for pod, ns := range map[string]string{"anchor": open, "client": open, "thief": open, "friend": open, "vault": closed} {
		p, err := s.client.CoreV1().Pods(ns).Get(s.ctx, pod, metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		ip := netip.MustParseAddr(p.Status.PodIP)
		s.peers[pod] = &peer{ip, s.n.PodNetNS(ip)}
	}
	at := map[string]netip.AddrPort{}
	nodePorts := map[string]uint16{}
	list, err := s.client.CoreV1().Services(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, svc := range list.Items {
		name := svc.Name + "." + svc.Namespace + ".svc.cluster.local."
		if svc.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		s.names[name] = svc.Spec.ClusterIP
		at[svc.Name] = netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), 80)
		nodePorts[svc.Name] = uint16(svc.Spec.Ports[0].NodePort)
	}
	s.names["near.storm.svc.cluster.local."] = s.peers["anchor"].ip.String()
	here := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), nodePorts["kept"])
	gateway := netip.AddrPortFrom(netip.MustParsePrefix(s.n.PodCIDR).Addr().Next(), nodePorts["kept"])
	vault := netip.AddrPortFrom(s.peers["vault"].ip, 8080)

	s.reached("client", at["kept"])
	s.from("client", func() { s.keep("a connection to a service", "tcp", at["kept"], "anchor") })
	s.from("client", func() { s.keep("datagrams to a service", "udp", at["kept"], "anchor") })
	s.from("client", func() { s.keep("a connection to the node's port", "tcp", gateway, "anchor") })
	s.running.Go(func() { s.keep("the machine's connection to a service", "tcp", at["kept"], "anchor") })
	s.from("client", func() { s.fresh("new connections to a service", at["kept"], "anchor") })
	s.running.Go(func() { s.fresh("new connections of the machine to a service", at["kept"], "anchor") })
	s.running.Go(func() { s.fresh("new connections to the machine's port", here, "anchor") })
	s.from("client", func() { s.moving("steady", at["steady"]) })
	s.from("client", func() { s.moving("scaled", at["scaled"]) })
	// The client is led to the anchor, and then there are others.
	s.reached("client", at["sticky"])
	if _, err := s.client.CoreV1().Services(open).Patch(s.ctx, "sticky", types.MergePatchType, []byte(`{"spec": {"selector": {"app": null, "mixed": "yes"}}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	s.from("client", func() { s.fresh("new connections by affinity", at["sticky"], "anchor") })

	s.reached("friend", vault)
	s.from("friend", func() { s.keep("an allowed connection", "tcp", vault, "vault") })
	s.from("friend", func() { s.keep("allowed datagrams", "udp", vault, "vault") })
	s.from("friend", func() { s.fresh("new allowed connections", vault, "vault") })
	s.eventually("the thief is kept out", func() (bool, string) { return !s.enters(vault), "" })
	for _, to := range []netip.AddrPort{vault, vault, at["vault"]} {
		s.from("thief", func() { s.steal(to) })
	}
	s.from("thief", s.sweep)
	for i := range 2 {
		s.from("client", func() { s.ask(s.rand(fmt.Sprint("questions ", i))) })
	}
}

// from does something in the network namespace of a pod.
func (s *storm) from(pod string, f func()) {
	s.running.Go(func() {
		err := harness.InNetNS(s.peers[pod].netns, func() error { f(); return nil })
		if err != nil {
			s.fault("the network namespace of %s: %v", pod, err)
		}
	})
}

// reached waits for the first answer: the rules of what has just been made hold a moment later.
func (s *storm) reached(pod string, to netip.AddrPort) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s reaches %s", pod, to), func() (bool, string) {
		var answer string
		err := harness.InNetNS(s.peers[pod].netns, func() (err error) {
			answer, err = speak(to, attempt, "hello")
			return err
		})
		return err == nil, fmt.Sprint(answer, err)
	})
}

// speak opens a connection, and returns who answers.
func speak(to netip.AddrPort, limit time.Duration, word string) (app string, err error) {
	end := time.Now().Add(limit)
	c, err := (&net.Dialer{Deadline: end}).Dial("tcp", to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	return exchange(c, end, word)
}

// exchange sends a line, and returns who has answered.
func exchange(c net.Conn, end time.Time, word string) (app string, err error) {
	if err := c.SetDeadline(end); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, word); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", err
	}
	f := strings.Fields(line)
	if len(f) != 3 || f[2] != word {
		return "", fmt.Errorf("the answer to %q is %q", word, line)
	}
	return f[0], nil
}

// pace is the time between one thing that somebody sends and the next.
func (s *storm) pace(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// keep asks over one connection, or one flow, as long as the storm lasts. A datagram that is not answered is sent again: a busy machine may lose it.
func (s *storm) keep(what, network string, to netip.AddrPort, app string) {
	c, err := net.DialTimeout(network, to.String(), patience*harness.SlowFactor())
	if err != nil {
		s.fault("%s to %s: %v", what, to, err)
		return
	}
	defer c.Close()
	for i := 0; s.pace(20 * time.Millisecond); i++ {
		var got string
		var err error
		for last := time.Now().Add(patience * harness.SlowFactor()); ; {
			end := last
			if network == "udp" {
				end = time.Now().Add(5 * time.Second)
			}
			if got, err = exchange(c, end, fmt.Sprint(i)); err == nil || network != "udp" || time.Now().After(last) {
				break
			}
			s.traffic.add(what+" that were sent again", 1)
		}
		if err != nil || got != app {
			s.fault("%s to %s: the answer to number %d came from %q, not %s: %v", what, to, i, got, app, err)
			return
		}
		s.traffic.add("answers over what is kept", 1)
	}
}

// fresh makes new connections to what is always there.
func (s *storm) fresh(what string, to netip.AddrPort, app string) {
	for s.pace(10 * time.Millisecond) {
		begun := time.Now()
		got, err := speak(to, patience*harness.SlowFactor(), "fresh")
		if err != nil || got != app {
			s.fault("%s at %s: the answer came after %v from %q, not %s: %v", what, to, time.Since(begun), got, app, err)
			return
		}
		s.traffic.add("new connections", 1)
		if time.Since(begun) > 900*time.Millisecond {
			s.traffic.add("new connections that took 0.9 s and more", 1)
		}
	}
}

// moving makes connections to a service whose endpoints come and go: whoever answers is one of them.
func (s *storm) moving(app string, to netip.AddrPort) {
	for s.pace(20 * time.Millisecond) {
		got, err := speak(to, time.Second, "moving")
		switch {
		case err != nil:
			s.traffic.add("connections without an answer from endpoints that come and go", 1)
		case got != app:
			s.fault("the service %s was answered by a pod of %s", app, got)
		default:
			s.traffic.add("connections to endpoints that come and go", 1)
		}
	}
}

// enters says whether the thief is heard.
func (s *storm) enters(to netip.AddrPort) (in bool) {
	err := harness.InNetNS(s.peers["thief"].netns, func() error {
		_, err := speak(to, attempt, "hello")
		in = err == nil
		return nil
	})
	if err != nil {
		s.fault("the network namespace of the thief: %v", err)
	}
	return in
}

// steal tries without a pause to connect to what is closed.
func (s *storm) steal(to netip.AddrPort) {
	for s.ctx.Err() == nil {
		c, err := net.DialTimeout("tcp", to.String(), attempt)
		if err == nil {
			c.Close()
			s.fault("the thief has reached %s", to)
			return
		}
		s.traffic.add("connections of the thief", 1)
		var refused net.Error
		if !errors.As(err, &refused) || !refused.Timeout() {
			s.traffic.add("connections of the thief that were refused", 1)
			s.pace(time.Millisecond)
		}
	}
}

// sweep sends datagrams to all addresses that pods may get next.
func (s *storm) sweep() {
	var to []net.Conn
	for a, i := netip.MustParsePrefix(s.n.PodCIDR).Addr().Next().Next(), 0; i < 250; a, i = a.Next(), i+1 {
		if a == s.peers["thief"].ip {
			continue
		}
		c, err := net.Dial("udp", netip.AddrPortFrom(a, 8080).String())
		if err != nil {
			s.fault("the thief: %v", err)
			return
		}
		defer c.Close()
		to = append(to, c)
	}
	for i := 0; s.pace(5 * time.Millisecond); i++ {
		for j := range 25 { // some at a time: the queues of the machine are for others, too
			c := to[(i*25+j)%len(to)]
			// What waits for an address that nobody has yet must not hold up the others.
			_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Write([]byte("thief")); err == nil {
				s.traffic.add("datagrams of the thief", 1)
			}
		}
	}
}

// query asks the DNS. known is false when there was no answer, or one that says that it is not known now.
func (s *storm) query(c net.Conn, id uint16, name string, kind dnsmessage.Type) (known bool, code dnsmessage.RCode, answers []string, err error) {
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	raw, err := q.Pack()
	if err != nil {
		return false, 0, nil, err
	}
	buf := make([]byte, 4096)
	_ = c.SetDeadline(time.Now().Add(attempt))
	if _, err := c.Write(raw); err != nil {
		return false, 0, nil, nil // nobody listens: it is asked again
	}
	for {
		n, err := c.Read(buf)
		if err != nil {
			return false, 0, nil, nil // nobody listens: it is asked again
		}
		var m dnsmessage.Message
		if err := m.Unpack(buf[:n]); err != nil {
			return false, 0, nil, err
		}
		if m.ID != id {
			continue // the answer to a question that was given up
		}
		for _, a := range m.Answers {
			switch body := a.Body.(type) {
			case *dnsmessage.AResource:
				answers = append(answers, netip.AddrFrom4(body.A).String())
			case *dnsmessage.PTRResource:
				answers = append(answers, body.PTR.String())
			}
		}
		return m.RCode != dnsmessage.RCodeServerFailure, m.RCode, answers, nil
	}
}

// ask asks the DNS for names, some 50 times a second.
func (s *storm) ask(rnd *rand.Rand) {
	c, err := s.dialDNS()
	if err != nil {
		s.fault("DNS: %v", err)
		return
	}
	defer c.Close()
	all := slices.Sorted(maps.Keys(s.names))
	for s.pace(20 * time.Millisecond) {
		name := all[rnd.IntN(len(all))]
		question, kind, want := name, dnsmessage.TypeA, []string{s.names[name]}
		wantCode := dnsmessage.RCodeSuccess
		switch rnd.IntN(5) {
		case 0:
			question, want, wantCode = "nobody-"+name, nil, dnsmessage.RCodeNameError
		case 1:
			kind, want = dnsmessage.TypeAAAA, nil
		case 2:
			if strings.HasPrefix(name, "near.") {
				continue
			}
			b := netip.MustParseAddr(s.names[name]).As4()
			question, kind, want = fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0]), dnsmessage.TypePTR, []string{name}
		}
		known, code, answers, err := s.query(c, uint16(rnd.UintN(1<<16)), question, kind)
		switch {
		case err != nil:
			s.fault("DNS: %s: %v", question, err)
		case !known:
			s.traffic.add("questions that were not answered", 1)
		case code != wantCode || !slices.Equal(answers, want):
			s.fault("DNS: %s of %s is %v with %v, and not %v with %v", kind, question, code, answers, wantCode, want)
		default:
			s.traffic.add("answers of the DNS", 1)
		}
	}
}

func (s *storm) dialDNS() (net.Conn, error) {
	first := netip.MustParsePrefix(s.n.ServiceCIDR).Addr().As4()
	first[3] += 10
	return net.Dial("udp", netip.AddrPortFrom(netip.AddrFrom4(first), 53).String())
}

// resolved waits until all services and all pods of the stateful set have the addresses that they have, and those that are not there have none.
func (s *storm) resolved(when string) {
	s.Helper()
	c, err := s.dialDNS()
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	id := uint16(0)
	s.eventually(when+": names of services", func() (bool, string) {
		want, err := s.wantedNames()
		if err != nil {
			return false, err.Error()
		}
		for name, addresses := range want {
			id++
			known, code, have, err := s.query(c, id, name, dnsmessage.TypeA)
			slices.Sort(have)
			if !known || err != nil || !slices.Equal(have, addresses) || (code == dnsmessage.RCodeSuccess) != (len(addresses) > 0) {
				return false, fmt.Sprintf("%s is %v with %v, and not %v; %v", name, code, have, addresses, err)
			}
		}
		return true, ""
	})
}

// wantedNames are the names of services, with their addresses, as the API has them.
func (s *storm) wantedNames() (map[string][]string, error) {
	want := map[string][]string{}
	for i := range 4 {
		want[fmt.Sprintf("come-%d.%s.svc.cluster.local.", i, open)] = nil
	}
	services, err := s.client.CoreV1().Services(open).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, svc := range services.Items {
		name := svc.Name + "." + open + ".svc.cluster.local."
		if svc.Spec.ClusterIP != corev1.ClusterIPNone {
			want[name] = []string{svc.Spec.ClusterIP}
			continue
		}
		pods, err := s.client.CoreV1().Pods(open).List(s.ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: svc.Spec.Selector})})
		if err != nil {
			return nil, err
		}
		want[name] = nil
		for _, p := range pods.Items {
			want[name] = append(want[name], p.Status.PodIP)
			if svc.Name == "set" {
				want[p.Name+"."+name] = []string{p.Status.PodIP}
			}
		}
		slices.Sort(want[name])
	}
	return want, nil
}

// served waits until each service is answered, by those whom it selects.
func (s *storm) served(when string) {
	s.Helper()
	s.eventually(when+": services are answered", func() (bool, string) {
		services, err := s.client.CoreV1().Services(open).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, svc := range services.Items {
			app := svc.Spec.Selector["app"]
			if svc.Spec.ClusterIP == corev1.ClusterIPNone || app == "" || app == "nobody" {
				continue
			}
			var got string
			err := harness.InNetNS(s.peers["client"].netns, func() (err error) {
				got, err = speak(netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), 80), attempt, "hello")
				return err
			})
			if err != nil || got != app {
				return false, fmt.Sprintf("%s was answered by %q: %v", svc.Name, got, err)
			}
		}
		return true, ""
	})
}
