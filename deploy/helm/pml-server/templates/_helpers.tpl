{{/* The name of the resources. Helm limits names of releases to 53 characters, so two releases never get the same one. */}}
{{- define "pml-server.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels that no upgrade changes, so that a selector can have them. */}}
{{- define "pml-server.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pml-server.labels" -}}
{{ include "pml-server.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "pml-server.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "pml-server.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "pml-server.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name: name the account that exists, or set serviceAccount.create" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "pml-server.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{ .Values.publicUrl }}
{{- else -}}
http://{{ include "pml-server.fullname" . }}.{{ .Release.Namespace }}.svc{{ if ne (int .Values.service.port) 80 }}:{{ int .Values.service.port }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The variables that are not secret. */}}
{{- define "pml-server.settings" -}}
PML_PUBLIC_URL: {{ include "pml-server.publicUrl" . | quote }}
{{- if .Values.metrics.enabled }}
PML_METRICS_LISTEN: "0.0.0.0:9464"
{{- end }}
{{- if .Values.ca.existingConfigMap }}
SSL_CERT_FILE: /etc/pml/ca/ca.crt
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "bool" $value }}
{{/* YAML reads `on` and `off` as true and false. */ -}}
{{ $name }}: {{ ternary "on" "off" $value | quote }}
{{- else if kindIs "string" $value }}
{{ $name }}: {{ $value | quote }}
{{- else }}
{{/* Large numbers would be written with an exponent. */ -}}
{{ $name }}: {{ int64 $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What every pod has: the namespace may enforce the `restricted` standard. */}}
{{- define "pml-server.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "pml-server.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where a pod runs. */}}
{{- define "pml-server.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "pml-server.caVolume" -}}
- name: ca
  configMap:
    name: {{ .Values.ca.existingConfigMap }}
    items:
      - { key: {{ .Values.ca.key | quote }}, path: ca.crt }
{{- end -}}

{{/* Names are resolved, and Postgres is reached: what the job needs, and every gateway. */}}
{{- define "pml-server.egress" -}}
- ports:
    - { protocol: UDP, port: 53 }
    - { protocol: TCP, port: 53 }
  {{- with .Values.networkPolicy.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- ports:
    - { protocol: TCP, port: {{ int .Values.networkPolicy.database.port }} }
  {{- with .Values.networkPolicy.database.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* A container of the job, without its name and arguments. */}}
{{- define "pml-server.migrateContainer" -}}
image: {{ include "pml-server.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: PML_MIGRATE_URL
    valueFrom:
      secretKeyRef: { name: {{ .Values.migrations.existingSecret | quote }}, key: {{ .Values.migrations.urlKey | quote }} }
securityContext:
  {{- include "pml-server.containerSecurity" . | nindent 2 }}
resources:
  {{- toYaml .Values.migrations.resources | nindent 2 }}
{{- if .Values.ca.existingConfigMap }}
volumeMounts:
  - { name: ca, mountPath: /etc/pml/ca, readOnly: true }
{{- end }}
{{- end -}}
