//go:build kubelet

package kubelet

// shapes are the static pods of the suite, by name.
var shapes = map[string]string{
	// full has most of what a pod can have, and a level of SELinux, which has no effect on hosts without it.
	"full": `
  terminationGracePeriodSeconds: 10
  securityContext: {seLinuxOptions: {level: s0}}
  volumes:
  - {name: e, emptyDir: {}}
  - {name: mem, emptyDir: {medium: Memory, sizeLimit: 4Mi}}
  - {name: h, hostPath: {path: HOSTDIR, type: Directory}}
  - name: d
    downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}]}
  initContainers:
  - {name: first, image: BUSYBOX, command: [sh, -c, "echo first > /e/first"], volumeMounts: [{name: e, mountPath: /e}]}
  - name: side
    image: BUSYBOX
    restartPolicy: Always
    command: [sh, -c, "trap 'echo side >> /h/order; exit 0' TERM; echo side > /e/side; while :; do sleep 1 & wait; done"]
    volumeMounts: [{name: e, mountPath: /e}, {name: h, mountPath: /h}]
    startupProbe: {exec: {command: [test, -f, /e/side]}, periodSeconds: 1}
  - {name: second, image: BUSYBOX, command: [sh, -c, "cat /e/first /e/side > /e/second"], volumeMounts: [{name: e, mountPath: /e}]}
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "trap 'echo main >> /h/order; exit 0' TERM; n=0; while :; do n=$((n+1)); echo tick $n; echo err $n >&2; sleep 1 & wait; done"]
    volumeMounts:
    - {name: e, mountPath: /e}
    - {name: d, mountPath: /d}
    - {name: mem, mountPath: /mem}
    - {name: h, mountPath: /h}
    - {name: h, mountPath: /sub, subPath: sub}
    - {name: h, mountPath: /propagated, mountPropagation: HostToContainer}
    - {name: h, mountPath: /ro, readOnly: true, recursiveReadOnly: IfPossible}
    env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory}}}]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 32Mi}}
    lifecycle:
      postStart: {exec: {command: [sh, -c, "echo started > /e/started"]}}
      preStop: {exec: {command: [sh, -c, "echo prestop >> /h/order"]}}
  - name: web
    image: BUSYBOX
    command: [sh, -c, "mkdir -p /www/cgi-bin; echo hello > /www/index.html; printf '#!/bin/sh\\necho bye >> /h/web\\necho; echo' > /www/cgi-bin/bye; chmod +x /www/cgi-bin/bye; exec httpd -f -p 80 -h /www"]
    volumeMounts: [{name: h, mountPath: /h}]
    ports: [{containerPort: 80, hostPort: 18080}]
    securityContext: {runAsUser: 0, runAsGroup: 0, readOnlyRootFilesystem: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, seccompProfile: {type: RuntimeDefault}, allowPrivilegeEscalation: false}
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
    readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
    livenessProbe: {exec: {command: [cat, /www/index.html]}, periodSeconds: 2, timeoutSeconds: 20}
    lifecycle: {preStop: {httpGet: {path: /cgi-bin/bye, port: 80}}}
`,
	"guaranteed": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, command: [sleep, "100000"], resources: {limits: {cpu: 200m, memory: 32Mi}}}
`,
	"crash": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, command: [sh, -c, "echo run; echo why > /dev/termination-log; exit 3"]}
`,
	"fallback": `
  restartPolicy: Never
  containers:
  - {name: c, image: BUSYBOX, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo the last words; exit 4"]}
`,
	"once": `
  restartPolicy: OnFailure
  containers:
  - {name: ok, image: BUSYBOX, command: [echo, done]}
  - {name: later, image: BUSYBOX, volumeMounts: [{name: e, mountPath: /e}], command: [sh, -c, "[ -f /e/x ] && exit 0; touch /e/x; exit 1"]}
  volumes: [{name: e, emptyDir: {}}]
`,
	"hostnet": `
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, command: [sh, -c, "mkdir /www; echo host > /www/index.html; exec httpd -f -p 18081 -h /www"], readinessProbe: {httpGet: {host: 127.0.0.1, path: /, port: 18081}, periodSeconds: 1}}
`,
	"live": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, volumeMounts: [{name: e, mountPath: /e}], command: [sh, -c, "touch /ok; [ -f /e/x ] && exec sleep 100000; echo first life; touch /e/x; sleep 4; rm /ok; exec sleep 100000"], livenessProbe: {exec: {command: [cat, /ok]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}}
  volumes: [{name: e, emptyDir: {}}]
`,
	"hang": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, command: [sleep, "100000"], readinessProbe: {exec: {command: [sleep, "60"]}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}}
`,
	"notready": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, command: [sleep, "100000"], readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}}
`,
	"userns": `
  hostUsers: false
  terminationGracePeriodSeconds: 1
  volumes: [{name: e, emptyDir: {}}]
  containers:
  - {name: c, image: BUSYBOX, command: [sh, -c, "touch /e/x; exec sleep 100000"], volumeMounts: [{name: e, mountPath: /e}]}
`,
	"shared": `
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: a, image: BUSYBOX, command: [sleep, "100001"]}
  - {name: b, image: BUSYBOX, command: [sleep, "100002"]}
`,
	"talk": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: cat, image: BUSYBOX, stdin: true, command: [cat]}
`,
	"tty": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: tty, image: BUSYBOX, stdin: true, tty: true, command: [sh]}
`,
	"log": `
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: BUSYBOX, command: [sh, -c, "n=0; while [ $n -lt 6000 ]; do n=$((n+1)); echo line $n of a log that is rotated by the kubelet; [ $((n%50)) = 0 ] && usleep 200000; done; sleep 7; echo last"]}
`,
	"oom": `
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - {name: c, image: BUSYBOX, command: [sh, -c, "exec tail /dev/zero"], resources: {limits: {memory: 16Mi}}}
`,
	"refused": `
  terminationGracePeriodSeconds: 1
  volumes: [{name: h, hostPath: {path: HOSTDIR/no/such/directory}}]
  containers:
  - {name: c, image: BUSYBOX, command: [sleep, "100000"], volumeMounts: [{name: h, mountPath: /h}]}
`,
	"noimage": `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: test.example/missing:1, command: [sleep, "100000"]}
`,
}
