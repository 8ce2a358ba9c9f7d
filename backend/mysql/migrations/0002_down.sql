-- Back to version 1.
DROP PROCEDURE IF EXISTS redrive_publish;
DROP PROCEDURE IF EXISTS redrive_crc32c;
DELETE FROM redrive_migration WHERE version = 2;
